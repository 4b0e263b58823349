#pragma once

/// 16-bit arithmetic as the references do it: each operation in f32, its result rounded to the type of the
/// tensors.

#include <bit>
#include <cmath>
#include <limits>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/dtype.h"
#include "fakequant/core/numerics/detail/formulas.h"
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
inline float rounded_value(DType dtype, float v) {
  return visit_rounding(dtype, [v]<class T>(T) { return rounded<T>(v); });
}

/// The common type of two tensors: their type if equal, else f32 (f64 if one is f64). Integers do not count.
inline DType promoted(DType a, DType b) {
  if (a == b || !is_floating(b)) return a;
  if (!is_floating(a)) return b;
  return a == DType::f64 || b == DType::f64 ? DType::f64 : DType::f32;
}

// Numbers for which the formulas of `formulas-inl.h` round after each operation.

/// A float that is rounded to T, float16 or bfloat16, by every operation on it. Made from any float: only
/// results are rounded.
template <class T>
struct Stepped {
  float value;
  explicit operator float() const { return value; }
};
/// The number to compute in where results are of type T: the float itself for f32.
template <class T>
using Step = std::conditional_t<std::is_same_v<T, float>, float, Stepped<T>>;

template <class T>
Stepped<T> constant_(Stepped<T>, float value) {
  return {value};
}
template <class T>
Stepped<T> add_(Stepped<T> a, Stepped<T> b) {
  return {rounded<T>(a.value + b.value)};
}
template <class T>
Stepped<T> sub_(Stepped<T> a, Stepped<T> b) {
  return {rounded<T>(a.value - b.value)};
}
template <class T>
Stepped<T> mul_(Stepped<T> a, Stepped<T> b) {
  return {rounded<T>(a.value * b.value)};
}
template <class T>
Stepped<T> div_(Stepped<T> a, Stepped<T> b) {
  return {rounded<T>(a.value / b.value)};
}
/// Integers up to 2^8 and more are numbers of every type: nothing to round.
template <class T>
Stepped<T> rint_(Stepped<T> a) {
  return {scalar::rint_(a.value)};
}
template <class T>
Stepped<T> min_(Stepped<T> a, Stepped<T> b) {
  return {scalar::min_(a.value, b.value)};
}
template <class T>
Stepped<T> max_(Stepped<T> a, Stepped<T> b) {
  return {scalar::max_(a.value, b.value)};
}
template <class T>
bool less_(Stepped<T> a, Stepped<T> b) {
  return a.value < b.value;
}
template <class T>
bool less_equal_(Stepped<T> a, Stepped<T> b) {
  return a.value <= b.value;
}
template <class T>
Stepped<T> select_(bool condition, Stepped<T> yes, Stepped<T> no) {
  return {condition ? yes.value : no.value};
}
using scalar::and_;

// Numbers for which the formulas of `formulas-inl.h` compute in double.

struct Wide {
  double value;
};

inline Wide add_(Wide a, Wide b) { return {a.value + b.value}; }
inline Wide sub_(Wide a, Wide b) { return {a.value - b.value}; }
inline Wide mul_(Wide a, Wide b) { return {a.value * b.value}; }
inline Wide rint_(Wide a) { return {std::rint(a.value)}; }
inline Wide min_(Wide a, Wide b) { return a.value < b.value ? a : b; }
inline Wide max_(Wide a, Wide b) { return a.value > b.value ? a : b; }
inline bool less_equal_(Wide a, Wide b) { return a.value <= b.value; }
using scalar::and_;

}  // namespace fq::detail
