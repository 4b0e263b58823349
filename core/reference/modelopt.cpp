#include "fakequant/core/reference/modelopt.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "fakequant/core/check.h"
#include "fakequant/core/cpu/channels.h"
#include "fakequant/core/format.h"
#include "fakequant/core/formulas.h"
#include "fakequant/core/reference/broadcast.h"
#include "fakequant/core/tape.h"

namespace fq::modelopt {
namespace {

constexpr const char* kInteger = "fake_tensor_quant";
constexpr const char* kFloat = "scaled_e4m3";
constexpr const char* kCast = "int_cast_ste";

/// x - bias: f32 values, row-major, rounded to `dtype`, the promoted type of the two.
struct Shifted {
  Tensor values;
  DType dtype;
  Layout layout;
  [[nodiscard]] bool is_meta() const { return values.device().is_meta(); }
};

struct Result {
  Tensor y, mask;  // the mask only where it was asked for
};

DType promoted(const Tensor& x, const Tensor& bias) {
  if (!bias.defined() || bias.rank() == 0 || bias.dtype() == x.dtype()) return x.dtype();
  return x.dtype() == DType::f64 || bias.dtype() == DType::f64 ? DType::f64 : DType::f32;
}

/// y[i] = f(x[i], other[j]) with `other` broadcast; both f32.
template <class F>
Tensor against(const Tensor& x, const Tensor& other, const char* function, F&& f) {
  Tensor out = Tensor::empty(x.shape());
  const auto *a = x.data<float>(), *b = other.data<float>();
  auto* y = out.mutable_data<float>();
  detail::for_broadcast(x.shape(), other.shape(), function, [&](auto begin, auto end, auto j) {
    for (auto i = begin; i < end; ++i) y[i] = f(a[i], b[j]);
  });
  return out;
}

Shifted shift(const Tensor& x, const Tensor& bias, const char* function) {
  FQ_CHECK(is_floating(x.dtype()), function, "the input is {}: give f32, f16, bf16 or f64", name(x.dtype()));
  Shifted out{x.to(Layout::row_major).to(DType::f32), promoted(x, bias), x.layout()};
  if (!bias.defined() || out.is_meta()) return out;
  out.values = against(out.values, bias.to(DType::f32), function, scalar::sub_).to(out.dtype).to(DType::f32);
  return out;
}

Tensor finish(const Tensor& y, const Shifted& x, const Tensor& bias, const char* function) {
  Tensor out = y.to(x.dtype);
  if (bias.defined() && !x.is_meta())
    out = against(out.to(DType::f32), bias.to(DType::f32), function, scalar::add_).to(x.dtype);
  return out.to(x.layout);
}

Tensor mask_of(const Shifted& x, const Tensor& amax, const char* function) {
  Tensor mask = Tensor::zeros(x.values.shape(), DType::u1, x.values.device());
  if (x.is_meta()) return mask;
  const bool rounded = amax.rank() == 0 && (x.dtype == DType::f16 || x.dtype == DType::bf16);
  const Tensor bound = rounded ? amax.to(x.dtype).to(DType::f32) : amax;
  const auto *v = x.values.data<float>(), *a = bound.data<float>();
  auto* bits = static_cast<std::uint8_t*>(mask.mutable_raw());
  detail::for_broadcast(x.values.shape(), amax.shape(), function, [&](auto begin, auto end, auto j) {
    for (auto i = begin; i < end; ++i) cpu::set_bit(bits, i, scalar::modelopt_mask(v[i], a[j]));
  });
  return mask;
}

void check_unsigned(const Shifted& x) {
  if (x.is_meta()) return;
  const auto* v = x.values.data<float>();
  const auto* end = v + x.values.numel();
  if (std::any_of(v, end, scalar::is_nan_)) return;
  const auto* negative = std::find_if(v, end, [](float e) { return e < 0; });
  FQ_CHECK(negative == end, kInteger, "the input has {} and the format is unsigned: use a signed one",
           *negative);
}

IntFormat integer_format(int num_bits, bool is_unsigned, bool narrow_range) {
  return Format(IntFormat{num_bits, is_unsigned, narrow_range}).integer();
}

Result integer_quant(const Tensor& input, const Amax& range, const Tensor& bias, const IntFormat& format,
                     bool masked) {
  FQ_CHECK(range.defined(), kInteger, "amax is missing: give a number, a list or a tensor");
  const auto ranges = range.values();
  const auto negative = std::ranges::find_if(ranges, [](float a) { return a < 0; });
  FQ_CHECK(negative == ranges.end(), kInteger, "amax has {}: it must not be negative", *negative);
  const Shifted x = shift(input, bias, kInteger);
  if (format.is_unsigned) check_unsigned(x);
  const Tensor amax = range.tensor();
  Result out{Tensor::empty(x.values.shape(), DType::f32, x.values.device()), {}};
  if (masked) out.mask = mask_of(x, amax, kInteger);
  if (!x.is_meta()) {
    const bool guard = std::ranges::none_of(ranges, scalar::is_nan_);
    const auto lower = static_cast<float>(format.lower()), upper = static_cast<float>(format.upper());
    const auto* v = x.values.data<float>();
    auto* y = out.y.mutable_data<float>();
    detail::for_broadcast(x.values.shape(), amax.shape(), kInteger, [&](auto begin, auto end, auto j) {
      const float a = ranges[static_cast<std::size_t>(j)];
      const float scale = scalar::modelopt_scale(a, upper, guard);
      const float divisor = scalar::modelopt_divisor(a, scale, guard);
      for (auto i = begin; i < end; ++i)
        y[i] = scalar::modelopt_fake_quant(v[i], scale, divisor, lower, upper);
    });
  }
  out.y = finish(out.y, x, bias, kInteger);
  return out;
}

Result float_quant(const Tensor& input, const Amax& range, const Tensor& bias, bool masked) {
  const Shifted x = shift(input, bias, kFloat);
  Result out{Tensor::empty(x.values.shape(), DType::f32, x.values.device()), {}};
  if (masked && range.defined()) out.mask = mask_of(x, range.tensor(), kFloat);
  if (!x.is_meta()) {
    const auto* v = x.values.data<float>();
    auto* y = out.y.mutable_data<float>();
    detail::for_broadcast(x.values.shape(), range.shape(), kFloat, [&](auto begin, auto end, auto j) {
      const bool scaled = range.defined();
      const float scale =
          scaled ? scalar::modelopt_e4m3_scale(range.values()[static_cast<std::size_t>(j)]) : 1.0f;
      for (auto i = begin; i < end; ++i)
        y[i] = scaled ? scalar::modelopt_scaled_e4m3(v[i], scale) : scalar::round_e4m3(v[i]);
    });
  }
  out.y = finish(out.y, x, bias, kFloat);
  return out;
}

Result int_cast(const Tensor& input, const IntFormat& format, bool masked) {
  const Shifted x = shift(input, {}, kCast);
  Result out{Tensor::empty(x.values.shape(), DType::f32, x.values.device()), {}};
  if (masked) out.mask = Tensor::zeros(x.values.shape(), DType::u1, x.values.device());
  if (!x.is_meta()) {
    const auto lower = static_cast<float>(format.lower()), upper = static_cast<float>(format.upper());
    const auto* v = x.values.data<float>();
    auto* y = out.y.mutable_data<float>();
    auto* bits = masked ? static_cast<std::uint8_t*>(out.mask.mutable_raw()) : nullptr;
    for (std::int64_t i = 0; i < input.numel(); ++i) {
      y[i] = scalar::modelopt_int_cast(v[i], lower, upper);
      if (masked) cpu::set_bit(bits, i, scalar::mask_closed(v[i], lower, upper));
    }
  }
  out.y = finish(out.y, x, {}, kCast);
  return out;
}

Variable recorded(std::string_view op, const Variable& x, Result result) {
  return detail::record(op, std::move(result.y), {x},
                        [mask = result.mask, dtype = x.tensor().dtype()](const Tensor& dy) {
                          if (!mask.defined()) return std::vector<Tensor>{dy.to(dtype)};
                          return std::vector<Tensor>{apply_mask(dy.to(DType::f32), mask).to(dtype)};
                        });
}

void check_e4m3(int exponent, int mantissa) {
  FQ_CHECK(exponent == 4 && mantissa == 3, kFloat, "the format is ({}, {}): use (4, 3)", exponent, mantissa);
}

}  // namespace

Tensor fake_tensor_quant(const Tensor& x, const Amax& amax, const Tensor& bias, int num_bits,
                         bool is_unsigned, bool narrow_range, bool) {
  return integer_quant(x, amax, bias, integer_format(num_bits, is_unsigned, narrow_range), false).y;
}

Variable fake_tensor_quant(const Variable& x, const Amax& amax, const Tensor& bias, int num_bits,
                           bool is_unsigned, bool narrow_range, bool pass_through_bwd) {
  const Variable v = x.as_float();
  const bool masked = detail::needs_grad({v}) && !pass_through_bwd;
  return recorded(
      "fake_tensor_quant", v,
      integer_quant(v.tensor(), amax, bias, integer_format(num_bits, is_unsigned, narrow_range), masked));
}

Tensor scaled_e4m3(const Tensor& x, const Amax& amax, const Tensor& bias, int exponent, int mantissa, bool) {
  check_e4m3(exponent, mantissa);
  return float_quant(x, amax, bias, false).y;
}

Variable scaled_e4m3(const Variable& x, const Amax& amax, const Tensor& bias, int exponent, int mantissa,
                     bool pass_through_bwd) {
  check_e4m3(exponent, mantissa);
  const Variable v = x.as_float();
  const bool masked = detail::needs_grad({v}) && !pass_through_bwd;
  return recorded("scaled_e4m3", v, float_quant(v.tensor(), amax, bias, masked));
}

Tensor int_cast_ste(const Tensor& x, int num_bits, bool is_unsigned, bool narrow_range) {
  return int_cast(x, integer_format(num_bits, is_unsigned, narrow_range), false).y;
}

Variable int_cast_ste(const Variable& x, int num_bits, bool is_unsigned, bool narrow_range) {
  const Variable v = x.as_float();
  return recorded(
      "int_cast_ste", v,
      int_cast(v.tensor(), integer_format(num_bits, is_unsigned, narrow_range), detail::needs_grad({v})));
}

}  // namespace fq::modelopt
