#include "fakequant/core/quantized.h"

#include <algorithm>
#include <cmath>

#include "fakequant/core/check.h"
#include "fakequant/core/cpu/block_codes.h"
#include "fakequant/core/cpu/codes.h"
#include "fakequant/core/formulas.h"
#include "fakequant/core/profile.h"

namespace fq {

namespace {

constexpr float kLeastAmax = 0x1p-24f;

void check_amax(const Tensor& amax, const std::string& name) {
  const auto* v = amax.data<float>();
  for (std::int64_t i = 0; i < amax.numel(); ++i)
    FQ_CHECK(v[i] >= 0 && std::isfinite(v[i]), "quantizer",
             "amax of '{}' is {}: it must be finite and not negative", name, v[i]);
}

/// The smallest power of two not below v, or its neighbour that E8M0 has.
float power_of_two(float v) {
  int exponent = 0;
  const float fraction = std::frexp(v, &exponent);
  if (v == 0 || exponent < -126) return 0x1p-127f;
  return std::ldexp(1.0f, std::min(fraction == 0.5f ? exponent - 1 : exponent, 127));
}

}  // namespace

QuantSpec QuantSpec::from_amax(Format format, Granularity granularity, Tensor amax, std::string name,
                               bool pow2, int zero_point) {
  QuantSpec spec{.format = format,
                 .granularity = std::move(granularity),
                 .amax = amax.to(DType::f32).clone(),
                 .scale = Tensor::empty(amax.shape()),
                 .zero_point = zero_point,
                 .name = std::move(name)};
  check_amax(spec.amax, spec.name);
  auto* ranges = spec.amax.mutable_data<float>();
  auto* scales = spec.scale.mutable_data<float>();
  for (std::int64_t i = 0; i < amax.numel(); ++i) {
    const float small = format.is_integer() ? kLeastAmax : 1.0f;
    scales[i] = (ranges[i] <= kLeastAmax ? small : ranges[i]) / format.bound();
    if (!pow2) continue;
    scales[i] = power_of_two(scales[i]);
    if (ranges[i] > kLeastAmax) ranges[i] = scales[i] * format.bound();
  }
  return spec;
}

QuantSpec QuantSpec::with_scale_bits(Format format, Granularity granularity, Tensor amax, NumBits scale_bits,
                                     float global, std::string name) {
  const bool e4m3 = scale_bits == NumBits(4, 3);
  FQ_CHECK(e4m3 || scale_bits == NumBits(8, 0), "quantizer",
           "scale_bits of '{}' are {}: use (4, 3) or (8, 0)", name, to_string(scale_bits));
  QuantSpec spec{.format = format,
                 .granularity = std::move(granularity),
                 .amax = amax.to(DType::f32).clone(),
                 .scale = Tensor::empty(amax.shape()),
                 .name = std::move(name),
                 .scale_bits = e4m3 ? 4 : 1};
  check_amax(spec.amax, spec.name);
  check_amax(Tensor::scalar(static_cast<double>(global)), spec.name);
  const float unit = global <= kLeastAmax ? 1.0f : global / (448.0f * format.bound());
  if (e4m3) spec.unit = unit;
  auto* ranges = spec.amax.mutable_data<float>();
  auto* scales = spec.scale.mutable_data<float>();
  for (std::int64_t i = 0; i < amax.numel(); ++i) {
    const float exact = ranges[i] / format.bound();
    scales[i] = e4m3 ? std::max(scalar::round_e4m3(exact / unit), 0x1p-9f) * unit : power_of_two(exact);
    ranges[i] = std::max(ranges[i], scales[i] * format.bound());
  }
  return spec;
}

QuantSpec QuantSpec::to(Device device) const {
  QuantSpec out = *this;
  out.amax = amax.to(device);
  out.scale = scale.to(device);
  return out;
}

Tensor code_values(const QuantizedTensor& x) {
  Tensor out = Tensor::empty(x.shape(), DType::f32, x.codes.device(), x.layout());
  if (!out.device().is_cpu()) return out;
  if (cpu::in_blocks(x.spec, x.shape(), "code_values"))
    cpu::decode_blocks(x, false, out);
  else
    cpu::decode(x.codes, out);
  return out;
}

Tensor dequantize(const QuantizedTensor& x) {
  const ProfileScope profile("epilogue");
  Tensor out = Tensor::empty(x.shape(), DType::f32, x.codes.device(), x.layout());
  if (!out.device().is_cpu()) return out;
  if (cpu::in_blocks(x.spec, x.shape(), "dequantize"))
    cpu::decode_blocks(x, true, out);
  else
    cpu::dequantize(x, out);
  return out;
}

QuantizedTensor quantize(const Tensor& input, const QuantSpec& spec, bool with_mask) {
  const ProfileScope profile("quantize");
  const bool blocks = cpu::in_blocks(spec, input.shape(), "quantize");
  const int axis = blocks ? -1 : cpu::channel_axis(spec, input.shape(), "quantize");
  const Tensor values = input.to(DType::f32), x = blocks ? values.to(Layout::row_major) : values;
  QuantizedTensor out{Tensor::empty(x.shape(), spec.format.code_dtype(), x.device(), x.layout()), spec, {}};
  if (with_mask) out.mask = Tensor::empty(x.shape(), DType::u1, x.device(), x.layout());
  if (!x.device().is_cpu()) return out;
  const bool nan = blocks ? cpu::quantize_blocks(x, out) : cpu::quantize(x, axis, out);
  if (nan) throw NumericError(fmt::format("[quantize] a NaN reached the quantizer '{}'", spec.name));
  return out;
}

bool same_grid(const QuantSpec& a, const QuantSpec& b) {
  const auto equal = [](const Tensor& x, const Tensor& y) {
    return (x.storage().shares(y.storage()) && x.shape() == y.shape()) || bitwise_equal(x, y);
  };
  return a.format == b.format && a.granularity == b.granularity && equal(a.scale, b.scale) &&
         equal(a.amax, b.amax);
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
