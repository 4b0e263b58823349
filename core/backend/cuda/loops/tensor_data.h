#pragma once

/// Tensors as what bodies of kernels hold. Operators have checked dtype and layout.

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

/// The elements in memory order; null where there is no tensor.
template <class T>
const T* data_of(const Tensor& x) {
  return x.defined() ? static_cast<const T*>(x.raw()) : nullptr;
}
/// To write to.
template <class T>
T* mutable_data_of(Tensor& x) {
  return x.defined() ? static_cast<T*>(x.mutable_raw()) : nullptr;
}

}  // namespace fq::cuda
