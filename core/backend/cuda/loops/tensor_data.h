#pragma once

/// Pointers to the data of tensors, for kernel bodies. The operators check dtype and layout. A launch counts
/// the tensors whose pointers were taken since the previous launch (runtime/work.h).

#include "fakequant/core/backend/cuda/runtime/work.h"
#include "fakequant/core/numerics/number_formats.h"
#include "fakequant/core/tensor.h"

namespace fq::cuda {

/// Calls f(float{}) or f(double{}).
template <class F>
void visit_float(DType dtype, F&& f) {
  if (dtype == DType::f64)
    f(double{});
  else
    f(float{});
}

/// Returns the elements in memory order; null for an undefined tensor.
template <class T>
const T* device_data(const Tensor& x) {
  if (!x.defined()) return nullptr;
  note_read(x.raw(), x.nbytes());
  return static_cast<const T*>(x.raw());
}
template <class T>
const T* device_data(const Storage& x) {
  note_read(x.data(), x.bytes());
  return reinterpret_cast<const T*>(x.data());
}
/// Returns the elements for writing.
template <class T>
T* mutable_device_data(Tensor& x) {
  if (!x.defined()) return nullptr;
  note_written(x.raw(), x.nbytes());
  return static_cast<T*>(x.mutable_raw());
}
template <class T>
T* mutable_device_data(Storage& x) {
  note_written(x.data(), x.bytes());
  return reinterpret_cast<T*>(x.mutable_data());
}
/// Returns the elements for a kernel that changes them in place.
template <class T>
T* updated_device_data(Tensor& x) {
  static_cast<void>(device_data<T>(x));
  return mutable_device_data<T>(x);
}

/// Calls f with an unsigned integer of `bytes` bytes, for kernels that only move elements.
template <class F>
void visit_word(int bytes, F&& f) {
  switch (bytes) {
    case 1:
      return f(std::uint8_t{});
    case 2:
      return f(std::uint16_t{});
    case 4:
      return f(std::uint32_t{});
    default:
      return f(std::uint64_t{});
  }
}

/// Returns bit i of a mask in memory order.
FQ_HD bool get_bit(const std::uint8_t* mask, std::int64_t i) { return ((mask[i >> 3] >> (i & 7)) & 1u) != 0; }

}  // namespace fq::cuda
