#include <algorithm>
#include <cmath>

#include "fakequant/core/detail/check.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/train/calibration/calibrate.h"

namespace fq {
namespace {

constexpr const char* kWhere = "postprocess_amax";

Tensor changed(const Tensor& amax, const std::function<float(float)>& change, const std::string& name) {
  std::vector<float> values = amax.to(DType::f32).to_vector<float>();
  for (float& value : values) {
    const float before = std::exchange(value, change(value));
    FQ_CHECK(value >= 0 && std::isfinite(value), kWhere,
             "amax {} of '{}' would become {}: it must be finite and not negative", before, name, value);
  }
  return Tensor::from(values, amax.shape()).to(amax.dtype());
}

float raised_to_pow2(float value) {
  int exponent = 0;
  if (value == 0 || std::frexp(value, &exponent) == 0.5f) return value;
  return std::ldexp(1.0f, exponent);
}

void check(const AmaxAdjustment& a) {
  FQ_CHECK(a.multiply > 0 && std::isfinite(a.multiply), kWhere, "multiply is {}: use more than 0",
           a.multiply);
  const double least = a.minimum.value_or(0), most = a.maximum.value_or(least);
  FQ_CHECK(least >= 0 && most >= least && std::isfinite(most), kWhere,
           "a minimum of {} and a maximum of {}: use 0 <= minimum <= maximum", least, most);
}

}  // namespace

int postprocess_amax(Module& model, std::string_view pattern, const std::function<float(float)>& change) {
  std::vector<std::pair<TensorQuantizer*, Tensor>> ranges;
  for_each_quantizer(model, pattern, kWhere, [&](const NamedQuantizer& entry) {
    if (const Tensor amax = entry.quantizer->amax(); amax.defined())
      ranges.emplace_back(entry.quantizer, changed(amax, change, entry.name));
  });
  for (const auto& [quantizer, amax] : ranges) quantizer->set_amax(amax);
  return static_cast<int>(ranges.size());
}

int postprocess_amax(Module& model, const AmaxAdjustment& a) {
  check(a);
  return postprocess_amax(model, a.pattern, [&](float amax) {
    double value = amax * a.multiply;
    if (a.minimum) value = std::max(value, *a.minimum);
    if (a.maximum) value = std::min(value, *a.maximum);
    const auto rounded = static_cast<float>(value);
    return a.pow2 ? raised_to_pow2(rounded) : rounded;
  });
}

}  // namespace fq
