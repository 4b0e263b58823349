#pragma once

/// Numbers that make the formulas of `formulas-inl.h` round after every operation.

#include "fakequant/core/numerics/detail/formulas.h"
#include "fakequant/reference/detail/rounding.h"

namespace fq::detail {

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

}  // namespace fq::detail
