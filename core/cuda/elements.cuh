#pragma once

/// The elements of tensors, whose types the operators have checked; not a public header.

#include "fakequant/core/tensor.h"

namespace fq::cuda {

/// f(float{}) or f(double{}).
template <class F>
void visit_float(DType dtype, F&& f) {
  if (dtype == DType::f64)
    f(double{});
  else
    f(float{});
}

/// Null for an undefined tensor.
template <class T>
const T* elements(const Tensor& x) {
  return x.defined() ? static_cast<const T*>(x.raw()) : nullptr;
}
template <class T>
T* mutable_elements(Tensor& x) {
  return x.defined() ? static_cast<T*>(x.mutable_raw()) : nullptr;
}

}  // namespace fq::cuda
