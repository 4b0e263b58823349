#pragma once

/// Tensors as what bodies of kernels hold; not a public header. Operators have checked dtype and layout.

#include "fakequant/core/tensor.h"

namespace fq::cuda {

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
