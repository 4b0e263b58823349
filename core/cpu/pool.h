#pragma once

/// Pooling of channels_last tensors; not a public header. Parallel over output rows forward, input rows
/// backward. Results have the bits of plain loops, for any number of threads.

#include <cstdint>

#include "fakequant/core/tensor.h"

namespace fq::cpu {

/// Sizes of a 2-D pooling: n images of h * w pixels of c channels to oh * ow pixels.
struct PoolSizes {
  std::int64_t n, c, h, w, kh, kw, sh, sw, ph, pw, oh, ow;

  [[nodiscard]] std::int64_t window() const { return kh * kw; }
};

/// A window of more pixels has places that do not fit into a byte.
inline constexpr std::int64_t byte_places = 255;

/// y = max of each window, of f32, f64, i8, u8, i16 or i32; the first maximum's place in its window goes to
/// `argmax` (y's shape; u8, or i32 for more than `byte_places`) when given. `flip` is for i32: the x ^
/// flip[c] are compared, so that -1 gives the smallest of a channel, 0 the largest.
void max_pool(const Tensor& x, const PoolSizes& sizes, Tensor& y, Tensor* argmax,
              const std::int32_t* flip = nullptr);
/// dx = the sum of dy of the windows that an element won; f32 or f64.
void max_pool_backward(const Tensor& dy, const Tensor& argmax, const PoolSizes& sizes, Tensor& dx);

/// y = fl(t / n), t the sum of a window in (h, w) order; f32, f64, or f32 of i8 and u8 codes times `scale`.
void avg_pool(const Tensor& x, const PoolSizes& sizes, bool include_padding, Tensor& y, float scale = 1.0f);
void avg_pool_backward(const Tensor& dy, const PoolSizes& sizes, bool include_padding, Tensor& dx);

/// sums[n][c] = the sum of integer codes over pixels, exact in i32.
void sum_pixels(const Tensor& codes, Tensor& sums);

}  // namespace fq::cpu
