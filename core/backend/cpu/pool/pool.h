#pragma once

/// Pooling of channels_last tensors. Parallel over output rows forward, input rows backward. Results have the
/// bits of plain loops, for any number of threads.

#include <cstdint>

#include "fakequant/core/blocks/detail/pool_windows.h"
#include "fakequant/core/tensor.h"

namespace fq::cpu {

using detail::PoolSizes;

/// y = max of each window, of f32, f64, i8, u8, i16 or i32; the first maximum's place in its window goes to
/// `argmax` (y's shape; u8, or i32 for more than `byte_places`) when given. `factor`, f32 [C], is for i32: a
/// channel whose factor is negative gives its smallest.
void max_pool(const Tensor& x, const PoolSizes& sizes, Tensor& y, Tensor* argmax, const Tensor& factor = {});
/// dx = the sum of dy of the windows that an element won; f32 or f64.
void max_pool_backward(const Tensor& dy, const Tensor& argmax, const PoolSizes& sizes, Tensor& dx);

/// y = fl(t / n), t the sum of a window in (h, w) order; f32, f64, or f32 of i8 and u8 codes times `scale`,
/// f32 of one element.
void avg_pool(const Tensor& x, const PoolSizes& sizes, bool include_padding, const Tensor& scale, Tensor& y);
void avg_pool_backward(const Tensor& dy, const PoolSizes& sizes, bool include_padding, Tensor& dx);

/// sums[n][c] = the sum of integer codes over pixels, exact in i32.
void sum_pixels(const Tensor& codes, Tensor& sums);

/// E4M3 bytes as i8 of the same order, or back.
void reorder_e4m3(const Tensor& bytes, Tensor& out);

}  // namespace fq::cpu
