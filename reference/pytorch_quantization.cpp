#include "fakequant/reference/pytorch_quantization.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/format.h"
#include "fakequant/core/numerics/detail/formulas.h"
#include "fakequant/core/tape.h"
#include "fakequant/reference/detail/broadcast.h"
#include "fakequant/reference/detail/clipped.h"
#include "fakequant/reference/kernels/kernels.h"

namespace fq::pytorch_quantization {
namespace {

constexpr const char* kCodes = "tensor_quant";
constexpr const char* kScale = "tensor_quant_scale";
constexpr const char* kLegacy = "legacy_fake_tensor_quant";

using detail::ReferenceKernels;

// The comparison is false for NaN: one NaN in x hides negative values, as in the reference (golden/README).
void check_unsigned(const Tensor& x, const char* function) {
  FQ_CHECK(x.numel() > 0, function, "the input has no elements and the format is unsigned: use a signed one");
  if (x.device().is_meta()) return;
  const float least = detail::run(x.device(), &ReferenceKernels::smallest, x);
  FQ_CHECK(!(least < 0), function, "the input has {} and the format is unsigned: use a signed one", least);
}

// Returns x, repeated where amax has more axes or elements.
template <class X>
X against(const X& x, const Amax& amax, const char* function) {
  FQ_CHECK(amax.defined() && !amax.values().empty(), function,
           "amax is missing: use a number, a list or a tensor");
  return detail::broadcast_up(x, {amax.shape()}, function);
}

void check(const Tensor& x, const Amax& amax, const IntFormat& format, const char* function) {
  detail::check_floats(x, function);
  if (format.is_unsigned) check_unsigned(x, function);
  const auto ranges = amax.values();
  const auto negative = std::ranges::find_if(ranges, [](float a) { return a < 0; });
  // A NaN in amax hides a negative value, because the reference checks the minimum.
  FQ_CHECK(negative == ranges.end() || std::ranges::any_of(ranges, scalar::is_nan_), function,
           "amax has {}: it must not be negative", *negative);
  detail::check_broadcast(x.shape(), amax.shape(), function);
}

// Returns the scale of each range as the reference returns it: 1 where amax is too small for a scale.
Tensor output_scales(const Amax& amax, const IntFormat& format) {
  // A NaN anywhere turns the guard for small ranges off: the reference tests min(amax) <= 2^-24.
  const bool guard = std::ranges::none_of(amax.values(), scalar::is_nan_);
  const auto upper = static_cast<float>(format.upper());
  Tensor scales = amax.tensor();
  auto* s = scales.mutable_data<float>();
  for (std::int64_t i = 0; i < scales.numel(); ++i)
    s[i] = scalar::modelopt_divisor(s[i], scalar::modelopt_scale(s[i], upper, guard), guard);
  return scales;
}

DType code_type(const Tensor& x, std::optional<DType> output_dtype) {
  if (!output_dtype) return x.dtype();
  FQ_CHECK(*output_dtype == DType::f32 || *output_dtype == DType::i32, kCodes,
           "the type of codes is {}: use f32 or i32", name(*output_dtype));
  return *output_dtype;
}

// The reference raises ValueError where the largest scale exceeds f16. A NaN makes that comparison false.
void check_half(const Tensor& x, const Tensor& scale) {
  if (x.dtype() != DType::f16) return;
  const auto s = scale.to_vector<float>();
  if (std::ranges::any_of(s, scalar::is_nan_)) return;
  const float largest = *std::ranges::max_element(s);
  FQ_CHECK(largest <= 65504.0f, kCodes, "a scale is {}, too large for f16: use f32, or a larger amax",
           largest);
}

// The reference returns the scale as a differentiable output and ignores its gradient: x gets zeros from it.
Variable accepting_gradient(Tensor scale, const Variable& x) {
  const Tensor like = x.tensor();
  return detail::record(kScale, std::move(scale), {x},
                        [shape = like.shape(), dtype = like.dtype(), device = like.device()](const Tensor&) {
                          return std::vector<Tensor>{Tensor::zeros(shape, dtype, device)};
                        });
}

Tensor legacy(const Tensor& x, const Amax& amax, const IntFormat& format) {
  check(x, amax, format, kLegacy);
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device(), x.layout());
  detail::run(x.device(), &ReferenceKernels::fake_quant_integer, x, amax.tensor(), amax.tensor(), format, y,
              nullptr);
  return y;
}

// f64 inputs take plain loops in double. The overloads below choose by this, because an Amax stores f32 only.
bool is_wide(const Tensor& x) { return x.defined() && x.dtype() == DType::f64; }

/// Range of an f64 input and its factors, computed in the type of the ranges.
struct WideRange {
  double amax, factor, divisor;  ///< codes are x * factor; the values of codes are codes / divisor
};

std::vector<WideRange> wide_ranges(const Tensor& amax, double upper, const char* function) {
  FQ_CHECK(amax.defined() && is_floating(amax.dtype()), function,
           "amax is missing: use a number, a list or a tensor");
  const bool in_double = amax.dtype() == DType::f64;
  const auto values = amax.to(Device::cpu()).to(DType::f64).to_vector<double>();
  const bool guard = std::ranges::none_of(values, [](double a) { return std::isnan(a); });
  std::vector<WideRange> out;
  for (const double a : values) {
    FQ_CHECK(!guard || a >= 0, function, "amax has {}: it must not be negative", a);
    // The reference divides in the type of amax, so f32 ranges have an f32 scale also for an f64 input.
    const double scale =
        in_double ? upper / a : static_cast<double>(static_cast<float>(upper) / static_cast<float>(a));
    const bool tiny = guard && a <= 0x1p-24;
    out.push_back({a, tiny ? 0.0 : scale, tiny ? 1.0 : scale});
  }
  return out;
}

/// Codes, scales and mask of an f64 input, in double, on its device.
struct WideCodes {
  Tensor codes, scale, mask;
};

WideCodes wide_codes(const Tensor& input, const Tensor& amax, const IntFormat& format, bool values,
                     const char* function) {
  const Tensor x = input.to(Device::cpu()).to(Layout::row_major);
  const auto ranges = wide_ranges(amax, format.upper(), function);
  const auto* v = x.data<double>();
  if (format.is_unsigned) {
    FQ_CHECK(
        x.numel() > 0 &&
            std::ranges::none_of(std::span(v, std::size_t(x.numel())), [](double one) { return one < 0; }),
        function, "the input is empty or has negative numbers and the format is unsigned: use a signed one");
  }
  WideCodes out{Tensor::empty(x.shape(), DType::f64), Tensor::empty(amax.shape(), DType::f64),
                Tensor::zeros(x.shape(), DType::u1)};
  auto* codes = out.codes.mutable_data<double>();
  auto* mask = static_cast<std::uint8_t*>(out.mask.mutable_raw());
  const double lower = format.lower(), upper = format.upper();
  detail::visit_broadcast(x.shape(), amax.shape(), function, [&](auto begin, auto end, auto j) {
    const WideRange& range = ranges[static_cast<std::size_t>(j)];
    for (auto i = begin; i < end; ++i) {
      const double code = std::rint(v[i] * range.factor);
      // std::clamp requires ordered values; NaN stays NaN.
      const double clamped = std::isnan(code) ? code : std::clamp(code, lower, upper);
      codes[i] = values ? clamped / range.divisor : clamped;
      cpu::set_bit(mask, i, std::fabs(v[i]) <= range.amax);
    }
  });
  std::ranges::transform(ranges, out.scale.mutable_data<double>(), &WideRange::divisor);
  for (Tensor* part : {&out.codes, &out.scale, &out.mask}) *part = part->to(input.device());
  return out;
}

WideCodes wide_shapes(const Tensor& x, const Tensor& amax) {
  return {Tensor::empty(x.shape(), DType::f64, x.device()),
          Tensor::empty(amax.shape(), DType::f64, x.device()),
          {}};
}

/// Records the codes of an f64 input, or their values, on the tape.
Quantized<Variable> wide(const Variable& input, const Tensor& amax, const IntFormat& format, bool values,
                         const char* function) {
  const Variable v = detail::broadcast_up(input.as_float(), {amax.shape()}, function);
  const Tensor x = v.tensor();
  WideCodes found =
      x.device().is_meta() ? wide_shapes(x, amax) : wide_codes(x, amax, format, values, function);
  const Tensor mask = detail::needs_grad({v}) ? found.mask : Tensor();
  return {detail::record_clipped(function, v, std::move(found.codes), mask,
                                 detail::TracedRange::integer(Amax(amax), format)),
          accepting_gradient(std::move(found.scale), v)};
}

}  // namespace

Quantized<Variable> tensor_quant(const Variable& x, const Tensor& amax, int num_bits, bool is_unsigned,
                                 bool narrow_range, std::optional<DType> output_dtype) {
  if (!is_wide(x.as_float().tensor()))
    return tensor_quant(x, Amax(amax), num_bits, is_unsigned, narrow_range, output_dtype);
  const IntFormat format = detail::integer_codes(num_bits, is_unsigned, narrow_range, kCodes);
  auto [codes, scale] = wide(x, amax, format, false, kCodes);
  const DType type = code_type(codes.tensor(), output_dtype);
  return {type == DType::f64 ? codes : Variable(codes.tensor().to(type)), scale};
}

Quantized<Tensor> tensor_quant(const Tensor& x, const Tensor& amax, int num_bits, bool is_unsigned,
                               bool narrow_range, std::optional<DType> output_dtype) {
  if (!is_wide(x)) return tensor_quant(x, Amax(amax), num_bits, is_unsigned, narrow_range, output_dtype);
  const auto [codes, scale] =
      tensor_quant(Variable(x), amax, num_bits, is_unsigned, narrow_range, output_dtype);
  return {codes.tensor(), scale.tensor()};
}

Variable legacy_fake_tensor_quant(const Variable& x, const Tensor& amax, int num_bits, bool is_unsigned,
                                  bool narrow_range) {
  if (!is_wide(x.as_float().tensor()))
    return legacy_fake_tensor_quant(x, Amax(amax), num_bits, is_unsigned, narrow_range);
  const IntFormat format = detail::integer_codes(num_bits, is_unsigned, narrow_range, kLegacy);
  return wide(x, amax, format, true, kLegacy).codes;
}

Tensor legacy_fake_tensor_quant(const Tensor& x, const Tensor& amax, int num_bits, bool is_unsigned,
                                bool narrow_range) {
  if (!is_wide(x)) return legacy_fake_tensor_quant(x, Amax(amax), num_bits, is_unsigned, narrow_range);
  return legacy_fake_tensor_quant(Variable(x), amax, num_bits, is_unsigned, narrow_range).tensor();
}

Quantized<Tensor> tensor_quant(const Tensor& input, const Amax& amax, int num_bits, bool is_unsigned,
                               bool narrow_range, std::optional<DType> output_dtype) {
  if (is_wide(input))
    return tensor_quant(input, amax.tensor(), num_bits, is_unsigned, narrow_range, output_dtype);
  const IntFormat format = detail::integer_codes(num_bits, is_unsigned, narrow_range, kCodes);
  const Tensor x = against(input, amax, kCodes);
  check(x, amax, format, kCodes);
  const Tensor scales = output_scales(amax, format);
  const DType dtype = code_type(x, output_dtype);
  check_half(x, scales);
  // Codes of up to 16 bits are exact in f32; the type of the result rounds them once (bf16 has 8 bits).
  Tensor codes = Tensor::empty(x.shape(), DType::f32, x.device());
  detail::run(x.device(), &ReferenceKernels::integer_codes, x.to(Layout::row_major).to(DType::f32),
              amax.tensor(), format, codes);
  const Tensor scale = scales.to(x.dtype());
  return {codes.to(dtype).to(x.layout()), x.device().is_meta() ? scale : scale.to(x.device())};
}

Quantized<Variable> tensor_quant(const Variable& x, const Amax& amax, int num_bits, bool is_unsigned,
                                 bool narrow_range, std::optional<DType> output_dtype) {
  if (is_wide(x.as_float().tensor()))
    return tensor_quant(x, amax.tensor(), num_bits, is_unsigned, narrow_range, output_dtype);
  const Variable v = against(x.as_float(), amax, kCodes);
  auto [codes, scale] = tensor_quant(v.tensor(), amax, num_bits, is_unsigned, narrow_range, output_dtype);
  Tensor mask;
  if (detail::needs_grad({v})) mask = detail::amax_mask(v.tensor(), amax.tensor(), kCodes);
  const auto range =
      detail::TracedRange::integer(amax, detail::integer_codes(num_bits, is_unsigned, narrow_range, kCodes));
  return {detail::record_clipped(kCodes, v, std::move(codes), std::move(mask), range),
          accepting_gradient(std::move(scale), v)};
}

Tensor legacy_fake_tensor_quant(const Tensor& x, const Amax& amax, int num_bits, bool is_unsigned,
                                bool narrow_range) {
  if (is_wide(x)) return legacy_fake_tensor_quant(x, amax.tensor(), num_bits, is_unsigned, narrow_range);
  const IntFormat format = detail::integer_codes(num_bits, is_unsigned, narrow_range, kLegacy);
  return legacy(against(x, amax, kLegacy), amax, format);
}

Variable legacy_fake_tensor_quant(const Variable& x, const Amax& amax, int num_bits, bool is_unsigned,
                                  bool narrow_range) {
  if (is_wide(x.as_float().tensor()))
    return legacy_fake_tensor_quant(x, amax.tensor(), num_bits, is_unsigned, narrow_range);
  const IntFormat format = detail::integer_codes(num_bits, is_unsigned, narrow_range, kLegacy);
  const Variable v = against(x.as_float(), amax, kLegacy);
  Tensor y = legacy(v.tensor(), amax, format), mask;
  if (detail::needs_grad({v})) mask = detail::amax_mask(v.tensor(), amax.tensor(), kLegacy);
  return detail::record_clipped(kLegacy, v, std::move(y), std::move(mask),
                                detail::TracedRange::integer(amax, format));
}

}  // namespace fq::pytorch_quantization
