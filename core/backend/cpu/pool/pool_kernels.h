#pragma once

/// Pooling of one row, compiled for every vector instruction set and selected at run time.
///
/// Rows are output rows in forward and input rows in backward, counted over all images. Vectors hold
/// channels. Results have the bits of plain loops over the pixels of each window in (h, w) order.

#include "fakequant/core/blocks/detail/pool_windows.h"
#include "fakequant/core/dtype.h"

namespace fq::cpu {

using detail::PoolSizes;

/// Arguments of the kernel max_pool. `argmax` may be null; i32 argmax requires elements of 4 or 8 bytes.
struct MaxPoolRows {
  PoolSizes sizes;
  DType dtype, argmax_dtype;
  const void* x;
  const std::int32_t* flip;  ///< for i32: the largest x ^ flip[c] wins; null: 0
  void *y, *argmax;
};
void max_pool_row(const MaxPoolRows& pool, std::int64_t row);

/// Arguments of the kernel max_pool_backward; f32 or f64.
struct MaxPoolGradient {
  PoolSizes sizes;
  DType dtype, argmax_dtype;
  const void *dy, *argmax;
  void* dx;
};
void max_pool_row_backward(const MaxPoolGradient& pool, std::int64_t row);

/// Arguments of the kernel avg_pool: f32 or f64, or f32 from codes times a scale.
struct AveragePool {
  PoolSizes sizes;
  bool include_padding;
  DType dtype;  ///< input type
  const void* in;
  float scale;  ///< scale of codes
  void* out;
};
void avg_pool_row(const AveragePool& pool, std::int64_t row);
void avg_pool_row_backward(const AveragePool& pool, std::int64_t row);

/// Sums i8, u8, i16 or i32 codes over `pixels` pixels.
void sum_image(const void* codes, DType dtype, std::int64_t pixels, std::int64_t channels,
               std::int32_t* sums);

}  // namespace fq::cpu
