#include "fakequant/train/qat_preset.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/layers/config/detail/quant_rules.h"
#include "fakequant/layers/config/target_profile.h"
#include "fakequant/train/qat_defaults.h"

namespace fq {
namespace {

using nlohmann::ordered_json;

constexpr const char* kFunction = "preset_config";
constexpr const char* kEdges[] = {"@first.*", "@last.*"};  // also the matrices of a recurrent layer
constexpr const char* kResidualSums = "@residual.*";

void add_rule(ordered_json& config, const std::string& pattern, const char* field,
              const ordered_json& value) {
  detail::append_rule(config, {{"pattern", pattern}, {field, value}});
}

/// Of blocks with E4M3 scales, which stand still so that they can be searched for.
void add_sweep_rules(ordered_json& config, const QuantConfig& preset) {
  bool any = false;
  for (const auto& rule : preset.rules) {
    const auto& blocks = rule.fields.block_sizes;
    if (!rule.pattern.ends_with("weight_quantizer") || !blocks || !*blocks) continue;
    if ((*blocks)->scale_bits != NumBits(4, 3)) continue;
    ordered_json sizes{{"type", "static"}, {"scale_bits", {4, 3}}};
    for (const auto& [axis, length] : (*blocks)->lengths) sizes[std::to_string(axis)] = length;
    detail::append_rule(config,
                        {{"pattern", rule.pattern}, {"block_sizes", sizes}, {"calib_method", "scale_sweep"}});
    any = true;
  }
  FQ_CHECK(any, kFunction,
           "weight_method is scale_sweep, which is for weights in blocks with scales of E4M3: use it with "
           "nvfp4, or mse_search");
}

/// Returns whether the quantizer takes its ranges from the weight, so that no method chooses them.
bool follows_weights(const PartialQuantParams& fields) {
  const auto on = [](const auto& field) { return field && field->value_or(false); };
  const bool dynamic_blocks =
      fields.block_sizes && *fields.block_sizes && (*fields.block_sizes)->type == BlockType::dynamic;
  return dynamic_blocks || on(fields.dynamic) || on(fields.binary);
}

/// Throws ArgumentError for a method that the weights of the preset would not follow.
void check_weight_method(const std::string& name, const QuantConfig& preset, const std::string& method) {
  if (method == "max" || method == "scale_sweep") return;
  const bool blocks_of_ggml = preset.target == Target::ggml;
  if (blocks_of_ggml && (method == "mse" || method == "mse_search")) return;
  for (const auto& rule : preset.rules)
    FQ_CHECK(!rule.pattern.ends_with("weight_quantizer") || !follows_weights(rule.fields), kFunction,
             "weight_method is {}: the weights of {} take their ranges from their values, use {}", method,
             name, blocks_of_ggml ? "max, mse or mse_search" : "max, or scale_sweep with nvfp4");
}

bool sweeps(const QuantConfig& preset) {
  return std::ranges::any_of(preset.rules,
                             [](const auto& rule) { return rule.fields.calib_method == "scale_sweep"; });
}

/// They have no blocks whose scales could be searched for.
void take_back_sweep_at_edges(ordered_json& config) {
  for (const char* edge : kEdges)
    add_rule(config, std::string(edge) + "weight_quantizer", "calib_method", "max");
}

/// Blocks of 4-bit floats have E4M3 with fixed ranges there.
void add_edge_rules(ordered_json& config, const QatDefaults& defaults, std::int64_t bits) {
  for (const char* edge : kEdges) {
    for (const auto& quantizer : defaults.integers) add_rule(config, edge + quantizer, "num_bits", bits);
    for (const auto& quantizer : defaults.integer_blocks)
      detail::append_rule(
          config, {{"pattern", edge + quantizer}, {"num_bits", bits}, {"block_sizes", nullptr}, {"axis", 0}});
    for (const auto& quantizer : defaults.float_blocks)
      detail::append_rule(config,
                          {{"pattern", edge + quantizer}, {"num_bits", {4, 3}}, {"block_sizes", nullptr}});
  }
}

void check_edge_bits(std::int64_t bits, const QatDefaults& defaults) {
  const bool some =
      !defaults.integers.empty() || !defaults.integer_blocks.empty() || !defaults.float_blocks.empty();
  FQ_CHECK(bits == 0 || some, kFunction,
           "edge_bits is for integers with fixed ranges, as those of int8 and w4a4, and for nvfp4 and mxfp4");
  FQ_CHECK(bits == 0 || (bits >= 2 && bits <= 16), kFunction, "edge_bits is {}: give 2 to 16, or 0", bits);
  FQ_CHECK(bits == 0 || bits == 8 || defaults.float_blocks.empty(), kFunction,
           "edge_bits is {}: with blocks of 4-bit floats give 8 (E4M3), or 0", bits);
}

std::string edge_text(const NumBits& bits) { return bits.is_integer() ? to_string(bits) + " bits" : "E4M3"; }

}  // namespace

ordered_json preset_config(const std::string& preset, const PresetChoices& choices) {
  ordered_json config{{"preset", preset}};
  const QuantConfig whole = QuantConfig::from_json(config);
  const QatDefaults defaults = qat_defaults(whole);
  if (defaults.method != "max") config["algorithm"] = defaults.method;
  const std::string method = choices.weight_method.value_or(defaults.weight_method);
  const std::int64_t bits = choices.edge_bits.value_or(defaults.edge_bits);
  check_edge_bits(bits, defaults);
  if (choices.weight_method) check_weight_method(preset, whole, *choices.weight_method);
  if (method == "scale_sweep")
    add_sweep_rules(config, whole);
  else if (method != "max")
    add_rule(config, "*weight_quantizer", "calib_method", method);
  if (bits > 0 && (method == "scale_sweep" || sweeps(whole))) take_back_sweep_at_edges(config);
  if (bits > 0) add_edge_rules(config, defaults, bits);
  if (defaults.float_residuals) add_rule(config, kResidualSums, "enable", false);
  return config;
}

std::string describe_choice(const QuantConfig& config) {
  std::string out = fmt::format("target {}, scale {}", name(config.target), config.pow2 ? "pow2" : "free");
  if (config.algorithm != "max") out += "; ranges by " + config.algorithm;
  for (const auto& rule : config.rules)
    if (rule.pattern.starts_with(kEdges[0]) && rule.fields.num_bits && *rule.fields.num_bits)
      return out + fmt::format("; {} in the first and the last layer", edge_text(**rule.fields.num_bits));
  return out;
}

}  // namespace fq
