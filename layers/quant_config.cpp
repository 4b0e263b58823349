#include "fakequant/layers/quant_config.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include <fmt/ranges.h>

#include "fakequant/core/check.h"
#include "fakequant/core/text.h"

namespace fq {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

QuantRule rule(std::string pattern, json fields, bool by_user) {
  return {std::move(pattern), std::make_shared<const json>(std::move(fields)), by_user};
}

json weight_fields(json bits) {
  json fields{{"num_bits", bits}, {"axis", 0}};
  if (bits.is_number()) fields["narrow_range"] = true;
  return fields;
}

struct Preset {
  json weight, input;  // null leaves the quantizer off
};

const std::map<std::string, Preset, std::less<>>& presets() {
  static const std::map<std::string, Preset, std::less<>> table{
      {"int8", {weight_fields(8), {{"num_bits", 8}}}},
      {"int8_weight_only", {weight_fields(8), nullptr}},
      {"w4a8", {weight_fields(4), {{"num_bits", 8}}}},
      {"w4a4", {weight_fields(4), {{"num_bits", 4}}}},
      {"w3a3", {weight_fields(3), {{"num_bits", 3}}}},
      {"w2a2", {weight_fields(2), {{"num_bits", 2}}}},
      {"fp8", {{{"num_bits", {4, 3}}}, {{"num_bits", {4, 3}}}}},
  };
  return table;
}

const std::map<std::string, std::string, std::less<>>& constants() {
  static const std::map<std::string, std::string, std::less<>> table{
      {"INT8_DEFAULT_CFG", "int8"}, {"INT8_WEIGHT_ONLY_CFG", "int8_weight_only"}, {"FP8_DEFAULT_CFG", "fp8"}};
  return table;
}

constexpr std::string_view kBlockPresets[] = {
    "int4_blockwise", "fp8_per_channel_per_token", "fp8_2d_blockwise", "nvfp4", "mxfp8", "mxfp6", "mxfp4",
    "mxint8"};

Target parse_target(const std::string& text) {
  for (const Target target : {Target::none, Target::ort, Target::tensorrt})
    if (name(target) == text) return target;
  throw ArgumentError(fmt::format("[quantize] target '{}' is unknown: use ort, tensorrt or none", text));
}

bool one_of_two(const std::string& key, const std::string& value, const char* no, const char* yes) {
  FQ_CHECK(value == no || value == yes, "quantize", "{} '{}' is unknown: use {} or {}", key, value, no, yes);
  return value == yes;
}

void add_rules(QuantConfig& config, const ordered_json& rules) {
  for (const auto& [key, entry] : rules.items()) {
    FQ_CHECK(entry.is_object(), "quantize", "rule '{}' is not an object of fields", key);
    json fields = json::parse(entry.dump());
    std::string pattern = key;
    if (rules.is_array()) {
      const char* names[] = {"pattern", "quantizer_name"};
      const auto* found = std::ranges::find_if(names, [&](const char* n) { return fields.contains(n); });
      FQ_CHECK(found != std::end(names) && fields[*found].is_string(), "quantize", "rule {} has no pattern",
               key);
      pattern = fields[*found].get<std::string>();
      fields.erase(*found);
    }
    const bool first = pattern == "default";  // ModelOpt's fallback, wherever it stands
    config.rules.insert(first ? config.rules.begin() : config.rules.end(),
                        rule(first ? "*" : pattern, std::move(fields), true));
  }
}

}  // namespace

std::string_view name(Target target) noexcept {
  return target == Target::none ? "none" : target == Target::ort ? "ort" : "tensorrt";
}

std::vector<std::string> QuantConfig::preset_names() {
  std::vector<std::string> names;
  for (const auto& [name, preset] : presets()) names.push_back(name);
  return names;
}

QuantConfig QuantConfig::preset(std::string_view name) {
  if (const auto alias = constants().find(name); alias != constants().end()) name = alias->second;
  FQ_CHECK(std::ranges::find(kBlockPresets, name) == std::end(kBlockPresets), "quantize",
           "preset '{}' needs block scales, which are not available in this version: use one of {}", name,
           fmt::join(preset_names(), ", "));
  const auto found = presets().find(name);
  FQ_CHECK(found != presets().end(), "quantize", "there is no preset '{}'{}", name,
           detail::did_you_mean(name, preset_names()));
  QuantConfig config;
  const auto& [weight, input] = found->second;
  if (!weight.is_null()) config.rules.push_back(rule("*weight_quantizer", weight, false));
  if (!input.is_null()) config.rules.push_back(rule("*input_quantizer", input, false));
  return config;
}

QuantConfig QuantConfig::from_json(const ordered_json& input) {
  FQ_CHECK(input.is_object(), "quantize", "a quantization config is a JSON object");
  const std::vector<std::string> keys{"preset", "rules",      "quant_cfg", "target",
                                      "scale",  "arithmetic", "algorithm"};
  const auto text = [&](const char* key, const std::string& fallback) {
    FQ_CHECK(!input.contains(key) || input[key].is_string() || input[key].is_null(), "quantize",
             "{} is not a string", key);
    return input.contains(key) && input[key].is_string() ? input[key].get<std::string>() : fallback;
  };
  for (const auto& [key, value] : input.items())
    FQ_CHECK(std::ranges::find(keys, key) != keys.end(), "quantize", "unknown key '{}'{}", key,
             detail::did_you_mean(key, keys));
  QuantConfig config = input.contains("preset") ? preset(text("preset", "")) : QuantConfig{};
  if (input.contains("rules")) add_rules(config, input["rules"]);
  if (input.contains("quant_cfg")) add_rules(config, input["quant_cfg"]);
  config.target = parse_target(text("target", "ort"));
  config.pow2 = one_of_two("scale", text("scale", "free"), "free", "pow2");
  config.arithmetic = one_of_two("arithmetic", text("arithmetic", "deployed"), "deployed", "reference")
                          ? Arithmetic::reference
                          : Arithmetic::deployed;
  config.algorithm = text("algorithm", "max");
  return config;
}

QuantConfig QuantConfig::parse(std::string_view text) {
  try {
    return from_json(ordered_json::parse(text, nullptr, true, true));
  } catch (const ordered_json::exception& error) {
    throw ArgumentError(fmt::format("[quantize] the config is not valid JSON: {}", error.what()));
  }
}

}  // namespace fq
