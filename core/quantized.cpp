#include "fakequant/core/quantized.h"

#include <algorithm>
#include <cmath>

#include "fakequant/core/check.h"
#include "fakequant/core/cpu/codes.h"

namespace fq {

QuantSpec QuantSpec::from_amax(Format format, Granularity granularity, Tensor amax, std::string name, bool pow2,
                               int zero_point) {
  constexpr float floor = 0x1p-24f;
  QuantSpec spec{format, std::move(granularity), amax.to(DType::f32).clone(), {}, zero_point, std::move(name)};
  spec.scale = Tensor::empty(amax.shape());
  auto* ranges = spec.amax.mutable_data<float>();
  auto* scales = spec.scale.mutable_data<float>();
  for (std::int64_t i = 0; i < amax.numel(); ++i) {
    FQ_CHECK(ranges[i] >= 0 && std::isfinite(ranges[i]), "quantizer",
             "amax of '{}' is {}: it must be finite and not negative", spec.name, ranges[i]);
    const float small = format.is_integer() ? floor : 1.0f;
    scales[i] = (ranges[i] <= floor ? small : ranges[i]) / format.bound();
    if (!pow2) continue;
    int exponent = 0;
    if (std::frexp(scales[i], &exponent) != 0.5f) scales[i] = std::ldexp(1.0f, exponent);
    if (ranges[i] > floor) ranges[i] = scales[i] * format.bound();
  }
  return spec;
}

Tensor code_values(const QuantizedTensor& x) {
  Tensor out = Tensor::empty(x.shape(), DType::f32, x.codes.device(), x.layout());
  if (out.device().is_cpu()) cpu::decode(x.codes, out);
  return out;
}

Tensor dequantize(const QuantizedTensor& x) {
  Tensor out = Tensor::empty(x.shape(), DType::f32, x.codes.device(), x.layout());
  if (out.device().is_cpu()) cpu::dequantize(x, out);
  return out;
}

QuantizedTensor quantize(const Tensor& input, const QuantSpec& spec, bool with_mask) {
  const Tensor x = input.to(DType::f32);
  QuantizedTensor out{Tensor::empty(x.shape(), spec.format.code_dtype(), x.device(), x.layout()), spec, {}};
  if (with_mask) out.mask = Tensor::empty(x.shape(), DType::u1, x.device(), x.layout());
  const int axis = cpu::channel_axis(spec, x.shape(), "quantize");
  if (x.device().is_cpu() && cpu::quantize(x, axis, out))
    throw NumericError(fmt::format("[quantize] a NaN reached the quantizer '{}'", spec.name));
  return out;
}

bool same_grid(const QuantSpec& a, const QuantSpec& b) {
  const auto equal = [](const Tensor& x, const Tensor& y) {
    return (x.storage().shares(y.storage()) && x.shape() == y.shape()) || bitwise_equal(x, y);
  };
  return a.format == b.format && a.granularity == b.granularity && equal(a.scale, b.scale) && equal(a.amax, b.amax);
}

Tensor apply_mask(const Tensor& dy, const Tensor& mask) {
  if (!mask.defined()) return dy;
  FQ_CHECK(dy.shape() == mask.shape(), "apply_mask", "the gradient is {}, the mask {}", to_string(dy.shape()),
           to_string(mask.shape()));
  const Tensor same = dy.to(mask.layout());
  Tensor out = Tensor::empty(dy.shape(), dy.dtype(), dy.device(), mask.layout());
  if (out.device().is_cpu()) cpu::apply_mask(same, mask, out);
  return out;
}

}  // namespace fq
