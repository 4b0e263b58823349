#include "fakequant/layers/config/quant_config.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <nlohmann/json_fwd.hpp>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/placed_error.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/layers/config/detail/modelopt_rules.h"
#include "fakequant/layers/config/detail/quant_presets.h"
#include "fakequant/layers/config/detail/weight_algorithm_fields.h"
#include "fakequant/layers/config/target_profile.h"

namespace fq::detail {
namespace {

using nlohmann::ordered_json;
using Keys = std::vector<std::string>;

constexpr const char* kWhere = "quantize";

double number(const ordered_json& object, const char* key, double lowest, double highest) {
  const ordered_json& value = object[key];
  FQ_CHECK(value.is_number() && value.get<double>() >= lowest && value.get<double>() <= highest, kWhere,
           "'{}' is {}: use {} to {}", key, value.dump(), lowest, highest);
  return value.get<double>();
}

int whole(const ordered_json& object, const char* key, int lowest) {
  const ordered_json& value = object[key];
  const auto whole = whole_if<int>(value, lowest, 1 << 30);
  FQ_CHECK(whole, kWhere, "'{}' is {}: use a whole number from {}", key, value.dump(), lowest);
  return *whole;
}

AmaxOptions amax_options(const ordered_json& object, AmaxOptions options) {
  if (object.contains("percentile")) options.percentile = number(object, "percentile", 0, 100);
  if (object.contains("stride")) options.stride = whole(object, "stride", 1);
  if (object.contains("start_bin")) options.start_bin = whole(object, "start_bin", 0);
  return options;
}

void check_keys(const ordered_json& object, const char* what, const Keys& keys) {
  FQ_CHECK(object.is_object(), kWhere, "'{}' has {}: give a list of objects", what, object.dump());
  for (const auto& [key, value] : object.items())
    FQ_CHECK(std::ranges::find(keys, key) != keys.end(), kWhere, "unknown key '{}' in '{}'{}", key, what,
             did_you_mean(key, keys));
}

std::string pattern_of(const ordered_json& object, const char* what) {
  FQ_CHECK(object.contains("pattern") && object["pattern"].is_string(), kWhere,
           "an entry of '{}' has no pattern: give one, as \"*input_quantizer\"", what);
  return object["pattern"].get<std::string>();
}

CalibrationRule rule(const ordered_json& object, const AmaxOptions& common) {
  check_keys(object, "rules", {"pattern", "method", "percentile", "stride", "start_bin"});
  CalibrationRule out{.pattern = pattern_of(object, "rules"), .amax = amax_options(object, common)};
  if (!object.contains("method")) return out;
  FQ_CHECK(object["method"].is_string(), kWhere, "'method' is {}: use the name of a method, as \"max\"",
           object["method"].dump());
  out.method = checked_algorithm(object["method"].get<std::string>());
  return out;
}

AmaxAdjustment adjustment(const ordered_json& object) {
  constexpr double kLargest = std::numeric_limits<float>::max();
  check_keys(object, "postprocess", {"pattern", "multiply", "minimum", "maximum", "pow2"});
  AmaxAdjustment out{.pattern = pattern_of(object, "postprocess")};
  if (object.contains("multiply")) out.multiply = number(object, "multiply", 0, kLargest);
  if (object.contains("minimum")) out.minimum = number(object, "minimum", 0, kLargest);
  if (object.contains("maximum")) out.maximum = number(object, "maximum", 0, kLargest);
  FQ_CHECK(!object.contains("pow2") || object["pow2"].is_boolean(), kWhere, "'pow2' is {}: use true or false",
           object["pow2"].dump());
  out.pow2 = object.value("pow2", false);
  return out;
}

const ordered_json& list(const ordered_json& object, const char* key) {
  static const ordered_json none = ordered_json::array();
  if (!object.contains(key)) return none;
  FQ_CHECK(object[key].is_array(), kWhere, "'{}' is {}: give a list of objects", key, object[key].dump());
  return object[key];
}

/// Puts the options, rules and adjustments of `input["algorithm"]` into `config`, where it is an object.
/// Throws ArgumentError naming the key.
void read_calibration(const ordered_json& input, QuantConfig& config) {
  if (!input.contains("algorithm") || !input["algorithm"].is_object()) return;
  const ordered_json& algorithm = input["algorithm"];
  config.amax = amax_options(algorithm, config.amax);
  for (const auto& entry : list(algorithm, "rules")) config.calibration.push_back(rule(entry, config.amax));
  for (const auto& entry : list(algorithm, "postprocess")) config.postprocess.push_back(adjustment(entry));
}

}  // namespace
}  // namespace fq::detail

namespace fq {
namespace {

using detail::at_place;
using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kWhere = "quantize";

std::string text(const ordered_json& input, const char* key, const char* fallback) {
  if (!input.contains(key) || input[key].is_null()) return fallback;
  FQ_CHECK(input[key].is_string(), kWhere, "{} is not a string", key);
  return input[key].get<std::string>();
}

/// Whether `key` is `yes`; `no` where it is not given.
bool one_of_two(const ordered_json& input, const char* key, const char* no, const char* yes) {
  return at_place(std::string("/") + key, [&] {
    const std::string value = text(input, key, no);
    FQ_CHECK(value == no || value == yes, kWhere, "{} '{}' is unknown: use {} or {}", key, value, no, yes);
    return value == yes;
  });
}

void check_keys(const ordered_json& input) {
  const std::vector<std::string> keys{"preset",     "rules",     "quant_cfg",        "target", "scale",
                                      "arithmetic", "algorithm", "weight_algorithm", "strict"};
  for (const auto& [key, value] : input.items())
    at_place("/" + detail::json_pointer_token(key), [&, &key = key] {
      FQ_CHECK(std::ranges::find(keys, key) != keys.end(), kWhere, "unknown key '{}'{}", key,
               detail::did_you_mean(key, keys));
    });
}

/// `{"pattern": "conv1.*", "preset": "w4a8"}`: the rules of the preset where the pattern matches.
std::vector<QuantRule> preset_for(const std::string& pattern, const json& fields) {
  FQ_CHECK(fields.size() == 1 && fields["preset"].is_string(), kWhere,
           "the rule '{}' is {}: a rule with a preset is its name and nothing else", pattern, fields.dump());
  return detail::preset_rules(fields["preset"].get<std::string>(), pattern);
}

/// Takes the pattern out of the fields of a rule in a list.
std::string take_pattern(json& fields, const std::string& key) {
  const char* names[] = {"pattern", "quantizer_name"};
  const auto* found = std::ranges::find_if(names, [&](const char* n) { return fields.contains(n); });
  FQ_CHECK(found != std::end(names) && fields[*found].is_string(), kWhere, "rule {} has no pattern", key);
  std::string pattern = fields[*found].get<std::string>();
  fields.erase(*found);
  return pattern;
}

std::vector<QuantRule> rules_of(const std::string& key, const ordered_json& entry, bool in_list) {
  FQ_CHECK(entry.is_object(), kWhere, "rule '{}' is not an object of fields", key);
  FQ_CHECK(!entry.contains("target"), kWhere,
           "rule '{}' has a target: one engine runs the whole model, give target beside the rules", key);
  json fields(entry);
  const std::string pattern = in_list ? take_pattern(fields, key) : key;
  if (fields.contains("preset")) return preset_for(pattern, fields);
  return {{.pattern = pattern, .fields = QuantFields::from_dict(fields)}};
}

void add_rules(QuantConfig& config, const ordered_json& rules) {
  for (const auto& [key, entry] : rules.items()) {
    const std::string place = "/" + detail::json_pointer_token(key);
    for (auto& rule : at_place(
             place, [&, &key = key, &entry = entry] { return rules_of(key, entry, rules.is_array()); })) {
      rule.place = "/rules" + place;
      config.rules.push_back(std::move(rule));
    }
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

std::vector<std::string> QuantConfig::preset_names() { return detail::preset_names(); }

std::vector<std::string> QuantConfig::weight_algorithm_names() { return detail::weight_algorithms(); }

QuantConfig QuantConfig::preset(std::string_view name) { return detail::preset_config(name); }

QuantConfig QuantConfig::from_json(const ordered_json& input) {
  FQ_CHECK(input.is_object(), kWhere, "a quantization config is a JSON object");
  check_keys(input);
  QuantConfig config;
  if (input.contains("preset"))
    config = at_place("/preset", [&] { return preset(text(input, "preset", "")); });
  if (input.contains("rules")) at_place("/rules", [&] { add_rules(config, input["rules"]); });
  if (input.contains("quant_cfg"))
    at_place("/quant_cfg", [&] { detail::add_modelopt_rules(config, input["quant_cfg"]); });
  at_place("/target", [&] {
    config.target = target_named(text(input, "target", std::string(name(config.target)).c_str()));
  });
  config.pow2 = one_of_two(input, "scale", "free", "pow2");
  if (one_of_two(input, "arithmetic", "deployed", "reference")) config.arithmetic = Arithmetic::reference;
  at_place("/algorithm", [&] {
    config.algorithm = algorithm_of(input);
    detail::read_calibration(input, config);
  });
  detail::read_weight_algorithm(input, config);
  at_place("/strict", [&] {
    FQ_CHECK(!input.contains("strict") || input["strict"].is_boolean(), kWhere,
             "strict is {}: use true or false", input["strict"].dump());
  });
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
