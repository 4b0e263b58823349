#pragma once

/// Elementwise kernels over tensors of one layout.

#include "fakequant/core/backend/cuda/loops/groups.cuh"
#include "fakequant/core/backend/cuda/loops/tensor_data.h"

namespace fq::cuda {
namespace loops {

template <class T, class F>
struct MapOne {
  const T* x;
  T* y;
  F f;
  FQ_HD void operator()(std::int64_t first, int count) const {
    T v[pack_size<T>];
    load_group(x + first, count, v);
    for (int j = 0; j < pack_size<T>; ++j)
      if (j < count) v[j] = f(v[j]);
    store_group(y + first, count, v);
  }
};

template <class T, class F>
struct MapTwo {
  const T *a, *b;
  T* y;
  F f;
  FQ_HD void operator()(std::int64_t first, int count) const {
    T v[pack_size<T>], w[pack_size<T>];
    load_group(a + first, count, v);
    load_group(b + first, count, w);
    for (int j = 0; j < pack_size<T>; ++j)
      if (j < count) v[j] = f(v[j], w[j]);
    store_group(y + first, count, v);
  }
};

}  // namespace loops

/// Sets y[i] = f(x[i]) for elements of type T. y may be x.
template <class T, class F>
void map(const Tensor& x, Tensor& y, F f) {
  launch_groups<pack_size<T>>(x.device(), x.numel(),
                              loops::MapOne<T, F>{device_data<T>(x), mutable_device_data<T>(y), f});
}

/// Sets y[i] = f(a[i], b[i]) for elements of type T. y may be a or b.
template <class T, class F>
void map(const Tensor& a, const Tensor& b, Tensor& y, F f) {
  launch_groups<pack_size<T>>(
      a.device(), a.numel(),
      loops::MapTwo<T, F>{device_data<T>(a), device_data<T>(b), mutable_device_data<T>(y), f});
}

}  // namespace fq::cuda
