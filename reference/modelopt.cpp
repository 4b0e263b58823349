#include "fakequant/reference/modelopt.h"

#include <algorithm>
#include <cmath>

#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/format.h"
#include "fakequant/core/numerics/detail/arithmetic.h"
#include "fakequant/core/numerics/detail/formulas.h"
#include "fakequant/core/tape.h"
#include "fakequant/core/trace.h"
#include "fakequant/reference/detail/broadcast.h"
#include "fakequant/reference/detail/clipped.h"
#include "fakequant/reference/detail/rounding.h"
#include "fakequant/reference/kernels/kernels.h"

namespace fq::modelopt {
namespace {

using detail::ReferenceKernels;

constexpr const char* kInteger = "fake_tensor_quant";
constexpr const char* kFloat = "scaled_e4m3";
constexpr const char* kCast = "int_cast_ste";

// x - bias, rounded to `dtype`, the promoted type of x and bias; x itself without bias. f64 is narrowed to
// f32, which the reference computes in.
struct Shifted {
  Tensor values;
  DType dtype;
  [[nodiscard]] bool is_meta() const { return values.device().is_meta(); }
};

// PyTorch's promotion of float tensors. Rank 0 does not promote.
DType promoted(const Tensor& x, const Tensor& bias) {
  if (!bias.defined() || bias.rank() == 0 || bias.dtype() == x.dtype()) return x.dtype();
  return x.dtype() == DType::f64 || bias.dtype() == DType::f64 ? DType::f64 : DType::f32;
}

// Returns f(x, other) in f32, with `other` broadcast to x.
Tensor combined(const Tensor& x, const Tensor& other, const detail::BinaryFunction& f) {
  Tensor out = Tensor::empty(x.shape(), DType::f32, x.device(), x.layout());
  if (x.numel() > 0)
    detail::run(x.device(), &detail::Kernels::combine, x, other.to(x.device()).to(DType::f32), f, out);
  return out;
}

Shifted shift(const Tensor& x, const Tensor& bias, const char* function) {
  FQ_CHECK(is_floating(x.dtype()), function, "the input is {}: use f32, f16, bf16 or f64", name(x.dtype()));
  if (bias.defined()) (void)detail::broadcast_block(x.shape(), bias.shape(), function);
  Shifted out{x.dtype() == DType::f64 ? x.to(DType::f32) : x, promoted(x, bias)};
  if (!bias.defined() || out.is_meta()) return out;
  out.values = combined(out.values.to(DType::f32), bias, detail::Subtract{}).to(out.dtype).to(DType::f32);
  return out;
}

// Rounds y to the type of the result, adds the bias and rounds again, as the reference's two operations do.
Tensor finish(const Tensor& y, const Shifted& x, const Tensor& bias) {
  if (!bias.defined() || x.is_meta()) return y.to(x.dtype);
  return combined(y.to(x.dtype).to(DType::f32), bias, detail::Add{}).to(x.dtype);
}

// Returns y and, if `masked`, the mask in the layout of x: kernels run in memory order.
detail::Masked allocated(const Shifted& x, bool masked) {
  const Tensor& v = x.values;
  detail::Masked out{Tensor::empty(v.shape(), v.dtype(), v.device(), v.layout()), {}};
  if (masked) out.mask = Tensor::empty(v.shape(), DType::u1, v.device(), v.layout());
  return out;
}

Tensor* mask_pointer(detail::Masked& out) { return out.mask.defined() ? &out.mask : nullptr; }

// NaN in x makes `least` NaN and hides negative values, as in the reference (golden/README).
void check_unsigned(const Shifted& x) {
  if (x.is_meta()) return;
  FQ_CHECK(x.values.numel() > 0, kInteger, "the input is empty and the format unsigned: use a signed one");
  const float least = detail::run(x.values.device(), &ReferenceKernels::smallest, x.values);
  FQ_CHECK(!(least < 0), kInteger,
           "the input has negative values and the format is unsigned: use a signed one");
}

Tensor checked_ranges(const Amax& range) {
  FQ_CHECK(range.defined(), kInteger, "amax is missing: use a number, a list or a tensor");
  const auto ranges = range.values();
  const auto negative = std::ranges::find_if(ranges, [](float a) { return a < 0; });
  FQ_CHECK(negative == ranges.end(), kInteger, "amax has {}: it must not be negative", *negative);
  return range.tensor();
}

// Quantizes with checked ranges, or with ranges on the input's GPU, whose kernel checks them.
detail::Masked integer_quant(const Tensor& input, const Tensor& amax, const Tensor& bias,
                             const IntFormat& format, bool masked) {
  const Shifted x = shift(input, bias, kInteger);
  (void)detail::broadcast_block(input.shape(), amax.shape(), kInteger);
  if (format.is_unsigned) check_unsigned(x);
  detail::Masked out = allocated(x, masked);
  detail::run(x.values.device(), &ReferenceKernels::fake_quant_integer, x.values, amax,
              detail::comparison_bound(x.dtype, amax), format, out.y, mask_pointer(out));
  out.y = finish(out.y, x, bias);
  return out;
}

/// `amax` is undefined, on the host, or on the GPU of the input.
detail::Masked float_quant(const Tensor& input, const Tensor& amax, const Tensor& bias, bool masked) {
  const Shifted x = shift(input, bias, kFloat);
  if (amax.defined()) (void)detail::broadcast_block(input.shape(), amax.shape(), kFloat);
  detail::Masked out = allocated(x, masked && amax.defined());
  const Tensor bound = amax.defined() ? detail::comparison_bound(x.dtype, amax) : Tensor();
  detail::run(x.values.device(), &ReferenceKernels::fake_quant_e4m3, x.values, amax, bound, out.y,
              mask_pointer(out));
  out.y = finish(out.y, x, bias);
  return out;
}

/// The bounds of codes as numbers of `dtype`.
struct CastBounds {
  double lower, upper;

  static CastBounds of(const IntFormat& format, DType dtype) {
    // The reference clamps in x's type: bounds of many bits round (16 bits in bf16) or overflow (in f16).
    const auto typed_value = [dtype](double v) { return Tensor::scalar(v, dtype).item(); };
    const double upper = typed_value(format.upper());
    FQ_CHECK(std::isfinite(upper), kCast, "the largest code {} is no number of {}: use fewer bits, or f32",
             format.upper(), name(dtype));
    const bool mirrored = !format.is_unsigned && format.narrow_range;  // of one bit: -0
    return {mirrored ? -upper : typed_value(format.lower()), upper};
  }
};

// int_cast for f64, in double on the host.
detail::Masked int_cast_wide(const Tensor& input, const CastBounds& bounds, bool masked) {
  using detail::Wide;
  const Tensor x = input.to(Device::cpu());
  detail::Masked out{Tensor::empty(x.shape(), x.dtype(), x.device(), x.layout()), {}};
  if (masked) out.mask = Tensor::zeros(x.shape(), DType::u1, x.device(), x.layout());
  const auto* v = x.data<double>(x.layout());
  auto* y = out.y.mutable_data<double>(x.layout());
  auto* bits = masked ? static_cast<std::uint8_t*>(out.mask.mutable_raw()) : nullptr;
  const Wide lower{bounds.lower}, upper{bounds.upper};
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    y[i] = scalar::modelopt_int_cast(Wide{v[i]}, lower, upper).value;
    if (masked) cpu::set_bit(bits, i, scalar::mask_closed(Wide{v[i]}, lower, upper));
  }
  return {out.y.to(input.device()), masked ? out.mask.to(input.device()) : Tensor()};
}

detail::Masked int_cast(const Tensor& input, const IntFormat& format, bool masked) {
  const CastBounds bounds = CastBounds::of(format, input.dtype());
  if (input.dtype() == DType::f64 && !input.device().is_meta()) return int_cast_wide(input, bounds, masked);
  const Shifted x = shift(input, {}, kCast);
  detail::Masked out = allocated(x, masked);
  detail::run(x.values.device(), &ReferenceKernels::round_to_integers, x.values,
              static_cast<float>(bounds.lower), static_cast<float>(bounds.upper), out.y, mask_pointer(out));
  out.y = finish(out.y, x, {});
  return out;
}

// True if the range is on the GPU of the input: it is used there and the host does not wait.
bool stays(Device device, const Tensor& amax) {
  return amax.defined() && amax.device().is_cuda() && amax.device() == device;
}

Variable recorded(std::string_view op, const Variable& x, detail::Masked result,
                  detail::TracedRange range = {}) {
  return detail::record_clipped(op, x, std::move(result.y), std::move(result.mask), std::move(range));
}

void check_e4m3(int exponent, int mantissa) {
  FQ_CHECK(exponent == 4 && mantissa == 3, kFloat, "the format is ({}, {}): use (4, 3)", exponent, mantissa);
}

}  // namespace

Tensor fake_tensor_quant(const Tensor& x, const Amax& amax, const Tensor& bias, int num_bits,
                         bool is_unsigned, bool narrow_range, bool) {
  const IntFormat format = detail::integer_codes(num_bits, is_unsigned, narrow_range, kInteger);
  const Tensor v = detail::broadcast_up(x, {amax.shape(), bias.shape()}, kInteger);
  return integer_quant(v, checked_ranges(amax), bias, format, false).y;
}

Variable fake_tensor_quant(const Variable& x, const Amax& amax, const Tensor& bias, int num_bits,
                           bool is_unsigned, bool narrow_range, bool pass_through_bwd) {
  const IntFormat format = detail::integer_codes(num_bits, is_unsigned, narrow_range, kInteger);
  const Variable v = detail::broadcast_up(x.as_float(), {amax.shape(), bias.shape()}, kInteger);
  const bool masked = detail::needs_grad({v}) && !pass_through_bwd;
  return recorded(kInteger, v, integer_quant(v.tensor(), checked_ranges(amax), bias, format, masked),
                  detail::TracedRange::integer(amax, format, bias.defined()));
}

Tensor fake_tensor_quant(const Tensor& x, const Tensor& amax, const Tensor& bias, int num_bits,
                         bool is_unsigned, bool narrow_range, bool pass_through_bwd) {
  if (!stays(x.device(), amax))
    return fake_tensor_quant(x, Amax(amax), bias, num_bits, is_unsigned, narrow_range, pass_through_bwd);
  const IntFormat format = detail::integer_codes(num_bits, is_unsigned, narrow_range, kInteger);
  const Tensor v = detail::broadcast_up(x, {amax.shape(), bias.shape()}, kInteger);
  return integer_quant(v, amax.to(DType::f32).to(Layout::row_major), bias, format, false).y;
}

Variable fake_tensor_quant(const Variable& x, const Tensor& amax, const Tensor& bias, int num_bits,
                           bool is_unsigned, bool narrow_range, bool pass_through_bwd) {
  // A trace records the range as host values, so tracing takes the other overload.
  if (!stays(x.device(), amax) || recorder() != nullptr)
    return fake_tensor_quant(x, Amax(amax), bias, num_bits, is_unsigned, narrow_range, pass_through_bwd);
  const IntFormat format = detail::integer_codes(num_bits, is_unsigned, narrow_range, kInteger);
  const Variable v = detail::broadcast_up(x.as_float(), {amax.shape(), bias.shape()}, kInteger);
  const bool masked = detail::needs_grad({v}) && !pass_through_bwd;
  return recorded(kInteger, v,
                  integer_quant(v.tensor(), amax.to(DType::f32).to(Layout::row_major), bias, format, masked));
}

Tensor scaled_e4m3(const Tensor& x, const Amax& amax, const Tensor& bias, int exponent, int mantissa, bool) {
  check_e4m3(exponent, mantissa);
  return float_quant(detail::broadcast_up(x, {amax.shape(), bias.shape()}, kFloat), amax.tensor(), bias,
                     false)
      .y;
}

Variable scaled_e4m3(const Variable& x, const Amax& amax, const Tensor& bias, int exponent, int mantissa,
                     bool pass_through_bwd) {
  check_e4m3(exponent, mantissa);
  const Variable v = detail::broadcast_up(x.as_float(), {amax.shape(), bias.shape()}, kFloat);
  const bool masked = detail::needs_grad({v}) && !pass_through_bwd;
  return recorded(kFloat, v, float_quant(v.tensor(), amax.tensor(), bias, masked),
                  detail::TracedRange::floating(amax, bias.defined()));
}

Tensor int_cast_ste(const Tensor& x, int num_bits, bool is_unsigned, bool narrow_range) {
  return int_cast(x, detail::integer_codes(num_bits, is_unsigned, narrow_range, kCast), false).y;
}

Variable int_cast_ste(const Variable& x, int num_bits, bool is_unsigned, bool narrow_range) {
  const Variable v = x.as_float();
  const IntFormat format = detail::integer_codes(num_bits, is_unsigned, narrow_range, kCast);
  return recorded(kCast, v, int_cast(v.tensor(), format, detail::needs_grad({v})));
}

}  // namespace fq::modelopt

namespace fq::detail {

Tensor scaled_e4m3_with_range(const Tensor& x, const Tensor& amax, const Tensor& bias, int exponent,
                              int mantissa, bool pass_through_bwd) {
  if (!modelopt::stays(x.device(), amax))
    return modelopt::scaled_e4m3(x, Amax(amax), bias, exponent, mantissa, pass_through_bwd);
  modelopt::check_e4m3(exponent, mantissa);
  const Tensor v = broadcast_up(x, {amax.shape(), bias.shape()}, modelopt::kFloat);
  return modelopt::float_quant(v, amax.to(DType::f32).to(Layout::row_major), bias, false).y;
}

Variable scaled_e4m3_with_range(const Variable& x, const Tensor& amax, const Tensor& bias, int exponent,
                                int mantissa, bool pass_through_bwd) {
  if (!modelopt::stays(x.device(), amax) || recorder() != nullptr)
    return modelopt::scaled_e4m3(x, Amax(amax), bias, exponent, mantissa, pass_through_bwd);
  modelopt::check_e4m3(exponent, mantissa);
  const Variable v = broadcast_up(x.as_float(), {amax.shape(), bias.shape()}, modelopt::kFloat);
  const bool masked = needs_grad({v}) && !pass_through_bwd;
  return modelopt::recorded(
      modelopt::kFloat, v,
      modelopt::float_quant(v.tensor(), amax.to(DType::f32).to(Layout::row_major), bias, masked));
}

}  // namespace fq::detail
