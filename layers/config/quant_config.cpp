#include "fakequant/layers/config/quant_config.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <nlohmann/json_fwd.hpp>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/placed_error.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/layers/config/detail/quant_presets.h"
#include "fakequant/layers/config/detail/quant_rules.h"
#include "fakequant/layers/config/target_profile.h"

namespace fq {
namespace {

using detail::did_you_mean;
using detail::locate_errors;
using nlohmann::json;
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
  const auto whole = detail::whole_if<int>(value, lowest, 1 << 30);
  FQ_CHECK(whole, kWhere, "'{}' is {}: use a whole number from {}", key, value.dump(), lowest);
  return *whole;
}

// Options of a rule start from the common ones.
AmaxOptions amax_options(const ordered_json& object, AmaxOptions options) {
  if (object.contains("percentile")) options.percentile = number(object, "percentile", 0, 100);
  if (object.contains("stride")) options.stride = whole(object, "stride", 1);
  if (object.contains("start_bin")) options.start_bin = whole(object, "start_bin", 0);
  return options;
}

void check_keys(const ordered_json& object, const char* what, const Keys& keys) {
  FQ_CHECK(object.is_object(), kWhere, "'{}' has {}: use a list of objects", what, object.dump());
  for (const auto& [key, value] : object.items())
    FQ_CHECK(std::ranges::find(keys, key) != keys.end(), kWhere, "unknown key '{}' in '{}'{}", key, what,
             did_you_mean(key, keys));
}

std::string read_pattern(const ordered_json& object, const char* what) {
  FQ_CHECK(object.contains("pattern") && object["pattern"].is_string(), kWhere,
           "an entry of '{}' has no pattern: use one, as \"*input_quantizer\"", what);
  return object["pattern"].get<std::string>();
}

/// Returns the name of an available method of calibration. Throws ArgumentError for another.
std::string checked_algorithm(const std::string& name) {
  const auto& methods = QuantDescriptor::calib_methods();
  FQ_CHECK(std::ranges::find(methods, name) != methods.end(), "quantize", "algorithm '{}' is unsupported{}",
           name, did_you_mean(name, {methods.begin(), methods.end()}));
  return name;
}

CalibrationRule rule(const ordered_json& object, const AmaxOptions& common) {
  check_keys(object, "rules", {"pattern", "method", "percentile", "stride", "start_bin"});
  CalibrationRule out{.pattern = read_pattern(object, "rules"), .amax = amax_options(object, common)};
  if (!object.contains("method")) return out;
  FQ_CHECK(object["method"].is_string(), kWhere, "'method' is {}: use the name of a method, as \"max\"",
           object["method"].dump());
  out.method = checked_algorithm(object["method"].get<std::string>());
  return out;
}

AmaxAdjustment adjustment(const ordered_json& object) {
  constexpr double kLargest = std::numeric_limits<float>::max();
  check_keys(object, "postprocess", {"pattern", "multiply", "minimum", "maximum", "pow2"});
  AmaxAdjustment out{.pattern = read_pattern(object, "postprocess")};
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
  FQ_CHECK(object[key].is_array(), kWhere, "'{}' is {}: use a list of objects", key, object[key].dump());
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

/// Names of algorithms on weights and scales, which train/ptq runs.
const std::vector<std::string>& weight_algorithms() {
  static const std::vector<std::string> names{
#define FQ_WEIGHT_ALGORITHM(name) #name,
#include "fakequant/layers/config/detail/weight_algorithms.def"
  };
  return names;
}

bool is_weight_algorithm(std::string_view name) {
  return std::ranges::find(weight_algorithms(), name) != weight_algorithms().end();
}

// A method is given by its name, or as an object with a method.
ordered_json method_entry(const ordered_json& given) {
  return given.is_object() ? given.value("method", ordered_json()) : given;
}

void set_algorithm(QuantConfig& config, const ordered_json& given) {
  config.weight_algorithm = method_entry(given).get<std::string>();
  config.weight_options.reset();
  if (!given.is_object()) return;
  json options(given);
  options.erase("method");
  config.weight_options = std::make_shared<const json>(std::move(options));
}

/// Returns ModelOpt's algorithm with ModelOpt's defaults, and only with the options of the algorithm.
ordered_json apply_reference_defaults(ordered_json given) {
  if (!given.is_object()) given = {{"method", given}};
  for (const char* key : {"percentile", "stride", "start_bin", "rules", "postprocess", "debug", "block_size",
                          "fused", "max_co_batch_size", "max_tokens_per_batch"})
    // Keys of calibration, and keys of ModelOpt that no algorithm has here.
    given.erase(key);
  if (given["method"] == "smoothquant" && !given.contains("alpha")) given["alpha"] = 1.0;
  return given;
}

/// Sets `weight_algorithm`, or the method of `algorithm` if that is one for weights. Then the keys of
/// calibration and of ModelOpt's batch sizes are dropped. ptq::Algorithm checks the other options. Throws
/// ArgumentError naming the key.
void read_weight_algorithm(const ordered_json& input, QuantConfig& config) {
  // True if the entry names an algorithm on weights.
  const auto named = [](const ordered_json& given) {
    const ordered_json method = method_entry(given);
    return method.is_string() && is_weight_algorithm(method.get<std::string>());
  };
  if (const auto theirs = input.find("algorithm"); theirs != input.end() && named(*theirs)) {
    set_algorithm(config, apply_reference_defaults(*theirs));
    config.weight_place = "/algorithm";
  }
  // "weight_algorithm" is more specific than "algorithm", and null switches a preset's algorithm off.
  const auto own = input.find("weight_algorithm");
  if (own == input.end()) return;
  config.weight_algorithm.clear();
  config.weight_options.reset();
  config.weight_place = "/weight_algorithm";
  if (own->is_null()) return;
  locate_errors(config.weight_place, [&] {
    const ordered_json method = method_entry(*own);
    FQ_CHECK(named(*own), "quantize", "'weight_algorithm' is {}{}", own->dump(),
             did_you_mean(method.is_string() ? method.get<std::string>() : "", weight_algorithms()));
    set_algorithm(config, *own);
  });
}

// A null value counts as absent.
std::string text(const ordered_json& input, const char* key, const char* fallback) {
  if (!input.contains(key) || input[key].is_null()) return fallback;
  FQ_CHECK(input[key].is_string(), kWhere, "{} is not a string", key);
  return input[key].get<std::string>();
}

/// Whether the value of `key` is `yes`. Without the key it is `no`.
bool one_of_two(const ordered_json& input, const char* key, const char* no, const char* yes) {
  return locate_errors(std::string("/") + key, [&] {
    const std::string value = text(input, key, no);
    FQ_CHECK(value == no || value == yes, kWhere, "{} '{}' is unknown: use {} or {}", key, value, no, yes);
    return value == yes;
  });
}

void check_config_keys(const ordered_json& input) {
  const std::vector<std::string> keys{"preset",     "rules",     "quant_cfg",        "target", "scale",
                                      "arithmetic", "algorithm", "weight_algorithm", "strict"};
  for (const auto& [key, value] : input.items())
    locate_errors("/" + detail::json_pointer_token(key), [&, &key = key] {
      FQ_CHECK(std::ranges::find(keys, key) != keys.end(), kWhere, "unknown key '{}'{}", key,
               did_you_mean(key, keys));
    });
}

/// Returns the calibration method. `algorithm` may be a name, ModelOpt's object with a method, or null.
/// Algorithms on weights calibrate by "max".
std::string calibration_algorithm(const ordered_json& input) {
  if (!input.contains("algorithm") || input["algorithm"].is_null()) return "max";
  const ordered_json& given = input["algorithm"];
  const ordered_json method = given.is_object() && given.contains("method") ? given["method"] : given;
  if (method.is_null()) return "max";
  FQ_CHECK(method.is_string(), "quantize", "'algorithm' is {}: use the name of a method, as \"max\"",
           given.dump());
  if (is_weight_algorithm(method.get<std::string>())) return "max";
  return checked_algorithm(method.get<std::string>());
}

}  // namespace

std::vector<std::string> QuantConfig::preset_names() { return detail::preset_names(); }

std::vector<std::string> QuantConfig::weight_algorithm_names() { return weight_algorithms(); }

QuantConfig QuantConfig::preset(std::string_view name) {
  QuantConfig config = detail::preset_config(name);
  if (!config.weight_algorithm.empty())
    set_algorithm(config, apply_reference_defaults(config.weight_algorithm));
  return config;
}

QuantConfig QuantConfig::from_json(const ordered_json& input) {
  FQ_CHECK(input.is_object(), kWhere, "a quantization config is a JSON object");
  // Before any value is read, so that a misspelt key is reported first.
  check_config_keys(input);
  QuantConfig config;
  if (input.contains("preset"))
    config = locate_errors("/preset", [&] { return preset(text(input, "preset", "")); });
  // Rules come after the preset, because later rules override earlier ones.
  if (input.contains("rules")) locate_errors("/rules", [&] { detail::add_rules(config, input["rules"]); });
  if (input.contains("quant_cfg"))
    locate_errors("/quant_cfg", [&] { detail::add_modelopt_rules(config, input["quant_cfg"]); });
  locate_errors("/target", [&] {
    // A preset may have set a target, which is then the default.
    config.target = target_named(text(input, "target", std::string(name(config.target)).c_str()));
  });
  config.pow2 = one_of_two(input, "scale", "free", "pow2");
  if (one_of_two(input, "arithmetic", "deployed", "reference")) config.arithmetic = Arithmetic::reference;
  locate_errors("/algorithm", [&] {
    config.algorithm = calibration_algorithm(input);
    read_calibration(input, config);
  });
  read_weight_algorithm(input, config);
  locate_errors("/strict", [&] {
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
