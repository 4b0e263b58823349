#include "fakequant/layers/config/quant_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/core/text.h"
#include "fakequant/layers/config/detail/calibration_fields.h"
#include "fakequant/layers/config/detail/modelopt_rules.h"
#include "fakequant/layers/config/detail/quant_presets.h"
#include "fakequant/layers/config/detail/weight_algorithm_fields.h"

namespace fq {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

Target parse_target(const std::string& text) {
  for (const Target target : {Target::none, Target::ort, Target::tensorrt})
    if (name(target) == text) return target;
  throw ArgumentError(fmt::format("[quantize] target '{}' is unknown: use ort, tensorrt or none", text));
}

bool one_of_two(const std::string& key, const std::string& value, const char* no, const char* yes) {
  FQ_CHECK(value == no || value == yes, "quantize", "{} '{}' is unknown: use {} or {}", key, value, no, yes);
  return value == yes;
}

/// `{"pattern": "conv1.*", "preset": "w4a8"}`: the rules of the preset where the pattern matches.
void add_preset_rule(QuantConfig& config, const std::string& pattern, const json& fields) {
  FQ_CHECK(fields.size() == 1 && fields["preset"].is_string(), "quantize",
           "the rule '{}' is {}: a rule with a preset is its name and nothing else", pattern, fields.dump());
  for (auto& rule : detail::preset_rules(fields["preset"].get<std::string>(), pattern))
    config.rules.push_back(std::move(rule));
}

void add_rules(QuantConfig& config, const ordered_json& rules) {
  for (const auto& [key, entry] : rules.items()) {
    FQ_CHECK(entry.is_object(), "quantize", "rule '{}' is not an object of fields", key);
    FQ_CHECK(!entry.contains("target"), "quantize",
             "rule '{}' has a target: one engine runs the whole model, give target beside the rules", key);
    json fields(entry);
    std::string pattern = key;
    if (rules.is_array()) {
      const char* names[] = {"pattern", "quantizer_name"};
      const auto* found = std::ranges::find_if(names, [&](const char* n) { return fields.contains(n); });
      FQ_CHECK(found != std::end(names) && fields[*found].is_string(), "quantize", "rule {} has no pattern",
               key);
      pattern = fields[*found].get<std::string>();
      fields.erase(*found);
    }
    if (fields.contains("preset")) {
      add_preset_rule(config, pattern, fields);
      continue;
    }
    config.rules.push_back(
        {.pattern = std::move(pattern), .fields = std::make_shared<const json>(std::move(fields))});
  }
}

/// A name, ModelOpt's object with a method, or null.
std::string algorithm_of(const ordered_json& input) {
  if (!input.contains("algorithm") || input["algorithm"].is_null()) return "max";
  const ordered_json& given = input["algorithm"];
  const ordered_json method = given.is_object() && given.contains("method") ? given["method"] : given;
  if (method.is_null()) return "max";
  FQ_CHECK(method.is_string(), "quantize", "'algorithm' is {}: use the name of a method, as \"max\"",
           given.dump());
  if (detail::is_weight_algorithm(method.get<std::string>())) return "max";
  return detail::checked_algorithm(method.get<std::string>());
}

}  // namespace

std::string_view name(Target target) noexcept {
  return target == Target::none ? "none" : target == Target::ort ? "ort" : "tensorrt";
}

std::vector<std::string> QuantConfig::preset_names() { return detail::preset_names(); }

std::vector<std::string> QuantConfig::weight_algorithm_names() { return detail::weight_algorithms(); }

QuantConfig QuantConfig::preset(std::string_view name) {
  QuantConfig config;
  config.rules = detail::preset_rules(name);
  detail::set_preset_algorithm(name, config);
  return config;
}

QuantConfig QuantConfig::from_json(const ordered_json& input) {
  FQ_CHECK(input.is_object(), "quantize", "a quantization config is a JSON object");
  const std::vector<std::string> keys{"preset",     "rules",     "quant_cfg",        "target", "scale",
                                      "arithmetic", "algorithm", "weight_algorithm", "strict"};
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
  if (input.contains("quant_cfg")) detail::add_modelopt_rules(config, input["quant_cfg"]);
  config.target = parse_target(text("target", "ort"));
  config.pow2 = one_of_two("scale", text("scale", "free"), "free", "pow2");
  config.arithmetic = one_of_two("arithmetic", text("arithmetic", "deployed"), "deployed", "reference")
                          ? Arithmetic::reference
                          : Arithmetic::deployed;
  config.algorithm = algorithm_of(input);
  detail::read_calibration(input, config);
  detail::read_weight_algorithm(input, config);
  FQ_CHECK(!input.contains("strict") || input["strict"].is_boolean(), "quantize",
           "strict is {}: use true or false", input["strict"].dump());
  config.strict = input.value("strict", false);
  return config;
}

QuantConfig QuantConfig::parse(std::string_view text) {
  try {
    return from_json(detail::parse_json<ordered_json>(text, true));
  } catch (const ordered_json::exception& error) {
    throw ArgumentError(fmt::format("[quantize] the config is not valid JSON: {}", error.what()));
  }
}

}  // namespace fq
