#include "fakequant/layers/config/detail/calibration_fields.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/layers/config/detail/quant_presets.h"

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

}  // namespace

void read_calibration(const ordered_json& input, QuantConfig& config) {
  if (!input.contains("algorithm") || !input["algorithm"].is_object()) return;
  const ordered_json& algorithm = input["algorithm"];
  config.amax = amax_options(algorithm, config.amax);
  for (const auto& entry : list(algorithm, "rules")) config.calibration.push_back(rule(entry, config.amax));
  for (const auto& entry : list(algorithm, "postprocess")) config.postprocess.push_back(adjustment(entry));
}

}  // namespace fq::detail
