#include "fakequant/layers/config/detail/quantizer_fields.h"

#include <nlohmann/json.hpp>

#include "fakequant/core/detail/check.h"

namespace fq::detail {
namespace {

bool boolean(const std::string& key, const nlohmann::json& value) {
  FQ_CHECK(value.is_boolean(), "quantize", "'{}' is {}: use true or false", key, value.dump());
  return value.get<bool>();
}

}  // namespace

std::string_view amax_gradient_name(AmaxGradient gradient) noexcept {
  return gradient == AmaxGradient::clip ? "clip" : "lsq";
}

AmaxGradient amax_gradient_from_name(std::string_view name) {
  for (const AmaxGradient gradient : {AmaxGradient::clip, AmaxGradient::lsq})
    if (amax_gradient_name(gradient) == name) return gradient;
  throw ArgumentError(fmt::format("[quantize] 'amax_gradient' is '{}': use clip or lsq", name));
}

void set_own_fields(QuantizerSettings& settings, nlohmann::json& fields) {
  if (fields.contains("enable")) settings.enabled = boolean("enable", fields["enable"]);
  if (fields.contains("pass_through_bwd") && fields["pass_through_bwd"].is_null())
    settings.pass_through_bwd.reset();
  else if (fields.contains("pass_through_bwd"))
    settings.pass_through_bwd = boolean("pass_through_bwd", fields["pass_through_bwd"]);
  if (fields.contains("amax_gradient")) {
    FQ_CHECK(fields["amax_gradient"].is_string(), "quantize",
             "'amax_gradient' is {}: use \"clip\" or \"lsq\"", fields["amax_gradient"].dump());
    settings.amax_gradient = amax_gradient_from_name(fields["amax_gradient"].get<std::string>());
  }
  for (const char* key : {"enable", "pass_through_bwd", "amax_gradient"}) fields.erase(key);
}

}  // namespace fq::detail
