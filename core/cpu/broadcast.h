#pragma once

/// Elementwise functions of two tensors that broadcast, and the sums of their gradients;
/// not a public header.

#include "fakequant/core/cpu/map.h"
#include "fakequant/core/cpu/walk.h"

namespace fq::cpu {

/// y = f(a, b) where a and b, of any layouts, broadcast to the shape of y.
template <class T, class F>
void broadcast(const Tensor& a, const Tensor& b, Tensor& y, F f) {
  const Walk walk(y.shape(), y.layout(),
                  {broadcast_strides(a.shape(), a.layout(), y.shape()),
                   broadcast_strides(b.shape(), b.layout(), y.shape())});
  const T* left = a.data<T>(a.layout());
  const T* right = b.data<T>(b.layout());
  T* out = y.mutable_data<T>(y.layout());
  const std::int64_t inner = walk.inner(), i_step = walk.step(0), j_step = walk.step(1);
#pragma omp parallel for schedule(static) if (y.numel() > parallel_elements)
  for (std::int64_t row = 0; row < walk.rows(); ++row) {
    const T* p = left + walk.offset(0, row);
    const T* q = right + walk.offset(1, row);
    T* z = out + row * inner;
    if (i_step == 1 && j_step == 1)
#pragma omp simd
      for (std::int64_t i = 0; i < inner; ++i) z[i] = f(p[i], q[i]);
    else if (i_step == 1 && j_step == 0)
#pragma omp simd
      for (std::int64_t i = 0; i < inner; ++i) z[i] = f(p[i], q[0]);
    else
      for (std::int64_t i = 0; i < inner; ++i) z[i] = f(p[i * i_step], q[i * j_step]);
  }
}

/// The sum of `x` over the axes along which `out` (row-major) was broadcast to its shape; in f64, in order.
void sum_to(const Tensor& x, Tensor& out);

}  // namespace fq::cpu
