#include "fakequant/layers/config/detail/quant_presets.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include <fmt/ranges.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/text.h"

namespace fq::detail {
namespace {

using nlohmann::json;

json e(int exponent, int mantissa) { return json::array({exponent, mantissa}); }

/// Weights of integers, narrow, or of floats, a range for each output channel.
json weight_fields(int bits) { return {{"num_bits", bits}, {"axis", 0}, {"narrow_range", true}}; }

json blocks(json bits, std::int64_t length) {
  return {{"num_bits", std::move(bits)}, {"block_sizes", {{"-1", length}}}};
}

json scaled_blocks(json bits, std::int64_t length, json scale_bits) {
  json fields = blocks(std::move(bits), length);
  fields["block_sizes"]["type"] = "dynamic";
  fields["block_sizes"]["scale_bits"] = std::move(scale_bits);
  return fields;
}

json mx(json bits) { return scaled_blocks(std::move(bits), 32, e(8, 0)); }
json nvfp4(std::int64_t length) { return scaled_blocks(e(2, 1), length, e(4, 3)); }
json fp8() { return {{"num_bits", e(4, 3)}}; }

json fp8_2d() {
  json fields = blocks(e(4, 3), 128);
  fields["block_sizes"]["-2"] = 128;
  return fields;
}

struct Preset {
  json weight, input;  // null leaves the quantizer off
  std::string prefix = "*";
};
using Presets = std::map<std::string, Preset, std::less<>>;

const Presets& presets() {
  static const Presets table{
      {"int8", {weight_fields(8), {{"num_bits", 8}}}},
      {"int8_weight_only", {weight_fields(8), nullptr}},
      {"w4a8", {weight_fields(4), {{"num_bits", 8}}}},
      {"w4a4", {weight_fields(4), {{"num_bits", 4}}}},
      {"w3a3", {weight_fields(3), {{"num_bits", 3}}}},
      {"w2a2", {weight_fields(2), {{"num_bits", 2}}}},
      {"int4_blockwise", {blocks(4, 128), nullptr}},
      {"fp8", {fp8(), fp8()}},
      {"fp8_per_channel_per_token",
       {{{"num_bits", e(4, 3)}, {"axis", 0}},
        {{"num_bits", e(4, 3)}, {"dynamic", true}, {"block_sizes", {{"-1", -1}}}}}},
      {"fp8_2d_blockwise", {fp8_2d(), nullptr}},
      {"nvfp4", {nvfp4(16), nvfp4(16)}},
      {"mxfp8", {mx(e(4, 3)), mx(e(4, 3))}},
      {"mxfp6", {mx(e(3, 2)), mx(e(3, 2))}},
      {"mxfp4", {mx(e(2, 1)), mx(e(2, 1))}},
      {"mxint8", {mx(8), mx(8)}},
  };
  return table;
}

/// ModelOpt's constants that have no preset of ours.
const Presets& constants() {
  static const Presets table{
      {"INT8_DEFAULT_CFG", presets().at("int8")},
      {"INT8_WEIGHT_ONLY_CFG", presets().at("int8_weight_only")},
      {"FP8_DEFAULT_CFG", presets().at("fp8")},
      {"FP8_PER_CHANNEL_PER_TOKEN_CFG", presets().at("fp8_per_channel_per_token")},
      {"FP8_2D_BLOCKWISE_WEIGHT_ONLY_CFG", presets().at("fp8_2d_blockwise")},
      {"INT4_BLOCKWISE_WEIGHT_ONLY_CFG", presets().at("int4_blockwise")},
      {"NVFP4_DEFAULT_CFG", presets().at("nvfp4")},
      {"NVFP4_MLP_ONLY_CFG", {nvfp4(16), nvfp4(16), "*mlp*"}},
      {"NVFP4_MLP_WEIGHT_ONLY_CFG", {nvfp4(32), nullptr, "*mlp*"}},
      {"W4A16_NVFP4_CFG", {nvfp4(16), nullptr}},
      {"W4A8_NVFP4_FP8_CFG", {nvfp4(32), fp8()}},
      {"W4A8_MXFP4_FP8_CFG", {mx(e(2, 1)), fp8()}},
      {"MXFP4_MLP_WEIGHT_ONLY_CFG", {mx(e(2, 1)), nullptr, "*mlp*"}},
      {"MXFP4_DEFAULT_CFG", presets().at("mxfp4")},
      {"MXFP6_DEFAULT_CFG", presets().at("mxfp6")},
      {"MXFP8_DEFAULT_CFG", presets().at("mxfp8")},
      {"MXINT8_DEFAULT_CFG", presets().at("mxint8")},
      {"INT8_SMOOTHQUANT_CFG", presets().at("int8")},
      {"INT4_AWQ_CFG", presets().at("int4_blockwise")},
      {"W4A8_AWQ_BETA_CFG", {{{"sequence", {blocks(4, 128), fp8()}}}, fp8()}},
      {"NVFP4_AWQ_LITE_CFG", presets().at("nvfp4")},
  };
  return table;
}

/// What a constant needs that is not here.
const std::map<std::string, std::string, std::less<>>& unavailable() {
  static const std::map<std::string, std::string, std::less<>> table{
      {"NVFP4_AWQ_CLIP_CFG", "clipped ranges of dynamic blocks"},
      {"NVFP4_AWQ_FULL_CFG", "clipped ranges of dynamic blocks"},
      {"NVFP4_SVDQUANT_DEFAULT_CFG", "the algorithm svdquant"},
      {"NVFP4_W4A4_WEIGHT_MSE_FP8_SWEEP_CFG", "a search for block scales"},
      {"NVFP4_W4A4_WEIGHT_LOCAL_HESSIAN_CFG", "the algorithm local_hessian"},
      {"NVFP4_FOUR_OVER_SIX_CFG", "four-over-six blocks"},
      {"FP8_KV_CFG", "a key-value cache"},
      {"FP8_AFFINE_KV_CFG", "a key-value cache"},
      {"NVFP4_KV_CFG", "a key-value cache"},
      {"NVFP4_AFFINE_KV_CFG", "a key-value cache"},
      {"NVFP4_KV_ROTATE_CFG", "a key-value cache"},
      {"NVFP4_EXPERTS_ONLY_CFG", "a mixture of experts"},
      {"NVFP4_OMLP_ONLY_CFG", "attention layers"},
      {"MAMBA_MOE_FP8_AGGRESSIVE_CFG", "a mixture of experts"},
      {"MAMBA_MOE_FP8_CONSERVATIVE_CFG", "a mixture of experts"},
      {"MAMBA_MOE_NVFP4_AGGRESSIVE_CFG", "a mixture of experts"},
      {"MAMBA_MOE_NVFP4_CONSERVATIVE_CFG", "a mixture of experts"},
  };
  return table;
}

QuantRule rule(std::string pattern, const json& fields) {
  return {.pattern = std::move(pattern), .fields = std::make_shared<const json>(fields), .by_user = false};
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const auto& [name, preset] : presets()) names.push_back(name);
  return names;
}

std::vector<QuantRule> preset_rules(std::string_view name, const std::string& within) {
  if (const auto found = unavailable().find(name); found != unavailable().end())
    throw ArgumentError(fmt::format("[quantize] '{}' needs {}, which is not available: use one of {}", name,
                                    found->second, fmt::join(preset_names(), ", ")));
  const Presets& table = constants().contains(name) ? constants() : presets();
  const auto found = table.find(name);
  FQ_CHECK(found != table.end(), "quantize", "there is no preset '{}'{}", name,
           did_you_mean(name, preset_names()));
  const auto& [weight, input, part] = found->second;
  FQ_CHECK(within.ends_with('*'), "quantize",
           "the pattern '{}' of preset '{}' does not end in '*': use 'conv1.*' for what conv1 has", within,
           name);
  FQ_CHECK(within == "*" || part == "*", "quantize",
           "the preset '{}' is for '{}' alone: as a rule of a pattern use another one", name, part);
  const std::string& prefix = within == "*" ? part : within;
  std::vector<QuantRule> out;
  if (!weight.is_null()) out.push_back(rule(prefix + "weight_quantizer", weight));
  if (!input.is_null()) out.push_back(rule(prefix + "input_quantizer", input));
  return out;
}

std::string checked_algorithm(const std::string& name) {
  const auto& methods = QuantDescriptor::calib_methods();
  FQ_CHECK(std::ranges::find(methods, name) != methods.end(), "quantize",
           "algorithm '{}' is not available, and other ranges than it asks for would be no substitute{}",
           name, did_you_mean(name, {methods.begin(), methods.end()}));
  return name;
}

}  // namespace fq::detail
