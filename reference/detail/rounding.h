#pragma once

/// 16-bit arithmetic as the references do it: each operation in f32, its result rounded to the type of the
/// tensors.

#include <bit>
#include <limits>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/dtype.h"
#include "fakequant/core/numerics/detail/scalar.h"

namespace fq::detail {

/// v rounded to binary16, without branches: by adding and subtracting on the grid of its exponent.
inline float rounded_to_f16(float v) {
  const float magnitude = scalar::abs_(v);
  const float grid = scalar::max_(scalar::exponent_(magnitude), 0x1p-14f) * 0x1.8p13f;
  const float inside = (magnitude + grid) - grid;
  return scalar::copysign_(magnitude >= 65520.0f ? std::numeric_limits<float>::infinity() : inside, v);
}

/// v rounded to bfloat16, without branches.
inline float rounded_to_bf16(float v) {
  const auto word = std::bit_cast<std::uint32_t>(v);
  const std::uint32_t near = word + 0x7fffu + ((word >> 16) & 1u);
  return std::bit_cast<float>((scalar::is_nan_(v) ? word | 0x400000u : near) & 0xffff0000u);
}

/// fl(v): v rounded to T, one of float, float16, bfloat16.
template <class T>
inline float rounded(float v) {
  if constexpr (std::is_same_v<T, float>)
    return v;
  else if constexpr (std::is_same_v<T, float16>)
    return rounded_to_f16(v);
  else
    return rounded_to_bf16(v);
}

/// Calls f(T{}) with the type whose rounding applies; f64 counts as f32.
template <class F>
decltype(auto) visit_rounding(DType dtype, F&& f) {
  if (dtype == DType::f16) return f(float16{});
  if (dtype == DType::bf16) return f(bfloat16{});
  return f(float{});
}

/// fl(v) in a type given at run time; f64 counts as f32.
inline float rounded_to(DType dtype, float v) {
  return visit_rounding(dtype, [v]<class T>(T) { return rounded<T>(v); });
}

/// The type in which two tensors meet: the same if equal, else f32 (f64 where one is). Integers do not count.
inline DType promoted(DType a, DType b) {
  if (a == b || !is_floating(b)) return a;
  if (!is_floating(a)) return b;
  return a == DType::f64 || b == DType::f64 ? DType::f64 : DType::f32;
}

}  // namespace fq::detail
