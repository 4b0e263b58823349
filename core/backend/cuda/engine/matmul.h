#pragma once

/// Products of matrices through cuBLASLt. As core/backend/cpu/engine/engine.h: it multiplies and never
/// scales.

#include <array>
#include <cstdint>

#include "fakequant/core/backend/cuda/engine/blas_lt.h"
#include "fakequant/core/backend/cuda/runtime/handle.h"
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

// The description of a product for cuBLASLt. cuBLASLt computes the transpose, from b and a: its
// column-major matrices are our row-major ones.

inline cublasStatus_t destroy_operation(cublasLtMatmulDesc_t d) { return blas_lt().MatmulDescDestroy(d); }
inline cublasStatus_t destroy_layout(cublasLtMatrixLayout_t l) { return blas_lt().MatrixLayoutDestroy(l); }

using Operation = Handle<cublasLtMatmulDesc_t, destroy_operation>;
using MatrixLayout = Handle<cublasLtMatrixLayout_t, destroy_layout>;

/// Of factors of a dtype.
struct MatmulTypes {
  cudaDataType factor, product;
  cublasComputeType_t compute;
  cudaDataType scale;
};
[[nodiscard]] MatmulTypes matmul_types(DType factor);

/// A row-major matrix as cuBLASLt's column-major one: its columns are the rows of the memory.
struct MatmulColumns {
  std::int64_t length, count, stride, batch_stride;

  [[nodiscard]] static MatmulColumns of(std::int64_t rows, std::int64_t columns, std::int64_t stride,
                                        std::int64_t batch_stride);
  [[nodiscard]] static MatmulColumns of(const Matrix& m);
  [[nodiscard]] MatrixLayout layout(cudaDataType type, std::int64_t batch) const;
};

/// How far a pointer and the steps from it are aligned, up to 256.
[[nodiscard]] std::uint32_t alignment(const void* pointer);

struct MatmulCall {
  using Key = std::array<std::int64_t, 18>;

  Operation operation;
  MatrixLayout left, right, out;  ///< cuBLASLt's: of b, a and c
  Key key;                        ///< everything that cuBLASLt chooses a kernel by

  [[nodiscard]] static MatmulCall of(const Matrix& a, const Matrix& b, const Product& c, std::int64_t batch);
};

}  // namespace fq::cuda
