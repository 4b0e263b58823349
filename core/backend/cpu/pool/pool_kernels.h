#pragma once

/// One row of a pooling, for every vector instruction set, chosen when the program runs.
///
/// Rows of the output forward, of the input backward, counted over all images. Vectors of channels; results
/// have the bits of plain loops over the pixels of each window in (h, w) order.

#include "fakequant/core/blocks/detail/pool_windows.h"
#include "fakequant/core/dtype.h"

namespace fq::cpu {

using detail::PoolSizes;

/// As the kernel max_pool. `argmax` may be null; i32 argmax only of elements of 4 and 8 bytes.
struct MaxPoolRows {
  PoolSizes sizes;
  DType dtype, argmax_dtype;
  const void* x;
  const std::int32_t* flip;  ///< of i32: the largest of x ^ flip[c] wins; null for 0
  void *y, *argmax;
};
void max_pool_row(const MaxPoolRows& pool, std::int64_t row);

/// As the kernel max_pool_backward; f32 or f64.
struct MaxPoolGradient {
  PoolSizes sizes;
  DType dtype, argmax_dtype;
  const void *dy, *argmax;
  void* dx;
};
void max_pool_row_backward(const MaxPoolGradient& pool, std::int64_t row);

/// As the kernel avg_pool: f32 or f64, and f32 of codes times a scale.
struct AveragePool {
  PoolSizes sizes;
  bool include_padding;
  DType dtype;  ///< of the input
  const void* in;
  float scale;  ///< of codes
  void* out;
};
void avg_pool_row(const AveragePool& pool, std::int64_t row);
void avg_pool_row_backward(const AveragePool& pool, std::int64_t row);

/// Sums over `pixels` pixels of i8, u8, i16 or i32 codes.
void sum_image(const void* codes, DType dtype, std::int64_t pixels, std::int64_t channels,
               std::int32_t* sums);

}  // namespace fq::cpu
