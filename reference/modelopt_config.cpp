#include <algorithm>
#include <nlohmann/json.hpp>

#include "fakequant/core/detail/check.h"
#include "fakequant/reference/modelopt.h"

namespace fq::modelopt {
namespace {

using nlohmann::json;
constexpr const char* kAttributeConfig = "quantizer_attribute_config";

// Translates a name as "e4m3" to [4, 3]. Other values are returned unchanged.
json bits(const json& value) {
  if (!value.is_string()) return value;
  const auto text = value.get<std::string>();
  const auto digit = [&](std::size_t i) { return text[i] >= '0' && text[i] <= '9'; };
  FQ_CHECK(text.size() == 4 && text[0] == 'e' && digit(1) && text[2] == 'm' && digit(3), kAttributeConfig,
           "the format '{}' is unknown: use a number of bits, [exponent, mantissa] or a name as e4m3", text);
  return {text[1] - '0', text[3] - '0'};
}

// `type` null is ModelOpt's default; four_over_six (two candidate scales per block) has no counterpart here.
json blocks(const json& value) {
  if (!value.is_object()) return value;
  json out = value;
  if (out.contains("scale_bits")) out["scale_bits"] = bits(out["scale_bits"]);
  if (out.contains("type") && out["type"].is_null()) out.erase("type");
  FQ_CHECK(!out.contains("four_over_six") || out["four_over_six"] == false, kAttributeConfig,
           "block_sizes with four_over_six are unsupported: leave it out");
  out.erase("four_over_six");
  return out;
}

bool is_dynamic(const json& value) {
  FQ_CHECK(value == "static" || value == "dynamic", kAttributeConfig,
           "type is {}: use \"static\" or \"dynamic\"", value.dump());
  return value == "dynamic";
}

// ModelOpt writes all fields, so defaults of unsupported ones must pass.
void refuse_unless_default(const std::string& key, const json& value) {
  const bool is_default = value.is_null() || value == false || (value.is_object() && value.empty());
  FQ_CHECK(is_default, kAttributeConfig, "'{}' is {}: it is unsupported, leave it out", key, value.dump());
}

bool is_listed(const std::string& key, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), key) != names.end();
}

void translate(const std::string& key, const json& value, json& out) {
  // Only ModelOpt's exporters read these.
  if (is_listed(key, {"trt_high_precision_dtype", "effective_bits"})) return;
  if (is_listed(key, {"bias", "rotate", "backend", "backend_extra_args", "use_constant_amax"}))
    return refuse_unless_default(key, value);
  if (key == "num_bits") {
    out[key] = bits(value);
  } else if (key == "block_sizes") {
    out[key] = blocks(value);
  } else if (key == "type") {
    if (is_dynamic(value)) out["dynamic"] = true;
  } else if (key == "calibrator") {
    out["calib_method"] = value;
  } else if (key == "constant_amax") {
    if (!value.is_null()) out["amax"] = value;
  } else {
    out[key] = value;
  }
}

}  // namespace

json descriptor_fields(const json& fields) {
  FQ_CHECK(fields.is_object(), kAttributeConfig, "the fields are {}: use an object", fields.dump());
  json out = json::object();
  for (const auto& [key, value] : fields.items()) translate(key, value, out);
  return out;
}

QuantDescriptor quantizer_attribute_config(const json& fields) {
  json all = descriptor_fields(fields);
  FQ_CHECK(all != json({{"enable", true}}), kAttributeConfig,
           "only enable is given: name a format too, as {{\"num_bits\": 8}}");
  FQ_CHECK(!all.contains("learn_amax") || all["learn_amax"] == false, kAttributeConfig,
           "learn_amax is unsupported by the reference: use a QuantDescriptor to learn ranges");
  // These configure a quantizer and have no field in a descriptor.
  for (const char* key : {"enable", "pass_through_bwd"}) {
    FQ_CHECK(!all.contains(key) || all[key].is_boolean(), kAttributeConfig, "{} is {}: use true or false",
             key, all[key].dump());
    all.erase(key);
  }
  return QuantDescriptor::from_dict(all);
}

}  // namespace fq::modelopt
