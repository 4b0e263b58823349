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

void set_own_fields(TensorQuantizer& quantizer, nlohmann::json& fields) {
  if (fields.contains("enable")) quantizer.set_enabled(boolean("enable", fields["enable"]));
  if (fields.contains("pass_through_bwd") && fields["pass_through_bwd"].is_null())
    quantizer.set_pass_through_bwd({});
  else if (fields.contains("pass_through_bwd"))
    quantizer.set_pass_through_bwd(boolean("pass_through_bwd", fields["pass_through_bwd"]));
  if (fields.contains("amax_gradient")) {
    FQ_CHECK(fields["amax_gradient"].is_string(), "quantize",
             "'amax_gradient' is {}: use \"clip\" or \"lsq\"", fields["amax_gradient"].dump());
    quantizer.set_amax_gradient(amax_gradient_from_name(fields["amax_gradient"].get<std::string>()));
  }
  for (const char* key : {"enable", "pass_through_bwd", "amax_gradient"}) fields.erase(key);
}

}  // namespace fq::detail
