#pragma once

/// Products of matrices through cuBLASLt. As core/backend/cpu/engine/engine.h: it multiplies and never
/// scales.

#include <cstdint>

#include "fakequant/core/device.h"
#include "fakequant/core/dtype.h"

namespace fq::cuda {

/// A row-major matrix, or a batch of them.
struct Matrix {
  const void* data;
  DType dtype;
  std::int64_t rows, columns;
  bool transposed = false;  ///< the memory holds [columns, rows]
  std::int64_t stride = 0;  ///< elements from a row of the memory to the next; 0: they follow each other
  std::int64_t batch_stride = 0;  ///< from a matrix to the next; 0: they follow each other
};

/// Where a product goes; row-major.
struct Product {
  void* data;
  DType dtype;
  std::int64_t stride = 0, batch_stride = 0;  ///< as of Matrix
  bool added = false;                         ///< to what is there, instead of written over it
};

/// c[i] = a[i] * b[i], a [M, K] and b [K, N], for `batch` products: f64*f64 -> f64, f32*f32 -> f32 without
/// TF32, bf16*bf16 -> f32, i8*i8 -> i32. Of i8, a is not transposed, b is, and N, K and all strides are
/// multiples of 4. Throws BackendError where cuBLASLt is missing or has no such product.
void gemm(const Matrix& a, const Matrix& b, const Product& c, std::int64_t batch, Device device);

}  // namespace fq::cuda
