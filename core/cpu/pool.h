#pragma once

/// Pooling of channels_last tensors; not a public header. Parallel over output rows forward, images backward.

#include <cstdint>

#include "fakequant/core/tensor.h"

namespace fq::cpu {

/// Sizes of a 2-D pooling: n images of h * w pixels of c channels to oh * ow pixels.
struct PoolSizes {
  std::int64_t n, c, h, w, kh, kw, sh, sw, ph, pw, oh, ow;

  [[nodiscard]] std::int64_t window() const { return kh * kw; }
};

/// y = max of each window, of f32, f64, i8, u8, i16 or i32; the first maximum's place in its window goes to
/// `argmax` (i32, y's shape) when given.
void max_pool(const Tensor& x, const PoolSizes& sizes, Tensor& y, Tensor* argmax);
/// dx = the sum of dy of the windows that an element won; f32 or f64.
void max_pool_backward(const Tensor& dy, const Tensor& argmax, const PoolSizes& sizes, Tensor& dx);

/// y = fl(t / n), t the sum of a window in (h, w) order; f32 or f64.
void avg_pool(const Tensor& x, const PoolSizes& sizes, bool include_padding, Tensor& y);
void avg_pool_backward(const Tensor& dy, const PoolSizes& sizes, bool include_padding, Tensor& dx);

/// sums[n][c] = the sum of integer codes over pixels, exact in i32.
void sum_pixels(const Tensor& codes, Tensor& sums);

}  // namespace fq::cpu
