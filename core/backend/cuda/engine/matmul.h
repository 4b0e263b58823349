#pragma once

/// Matrix products by cuBLASLt, as in core/backend/cpu/engine/engine.h: without scaling.

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
  bool transposed = false;        ///< the memory holds [columns, rows]
  std::int64_t stride = 0;        ///< distance between rows in memory, in elements; 0: contiguous
  std::int64_t batch_stride = 0;  ///< distance between matrices; 0: contiguous
};

/// Destination of a product; row-major.
struct Product {
  void* data;
  DType dtype;
  std::int64_t stride = 0, batch_stride = 0;  ///< as in Matrix
  bool added = false;                         ///< whether to add to the destination instead of overwriting it
};

/// Computes c[i] = a[i] * b[i], a [M, K] and b [K, N], for `batch` products: f64*f64 -> f64, f32*f32 -> f32
/// without TF32, bf16*bf16 -> f32, i8*i8 -> i32. For i8, only b is transposed, and N, K and all strides are
/// multiples of 4. Throws BackendError if cuBLASLt is missing or does not support the product.
void gemm(const Matrix& a, const Matrix& b, const Product& c, std::int64_t batch, Device device);

// Descriptions of a product for cuBLASLt. cuBLASLt computes the transposed product from b and a: its
// column-major matrices are our row-major matrices.

inline cublasStatus_t destroy_operation(cublasLtMatmulDesc_t d) { return blas_lt().MatmulDescDestroy(d); }
inline cublasStatus_t destroy_layout(cublasLtMatrixLayout_t l) { return blas_lt().MatrixLayoutDestroy(l); }

using Operation = Handle<cublasLtMatmulDesc_t, destroy_operation>;
using MatrixLayout = Handle<cublasLtMatrixLayout_t, destroy_layout>;

/// cuBLASLt types of a product, for factors of a dtype.
struct MatmulTypes {
  cudaDataType factor, product;
  cublasComputeType_t compute;
  cudaDataType scale;
};
[[nodiscard]] MatmulTypes matmul_types(DType factor);

/// A row-major matrix as a column-major matrix of cuBLASLt: its columns are the rows in memory.
struct MatmulColumns {
  std::int64_t length, count, stride, batch_stride;

  [[nodiscard]] static MatmulColumns of(std::int64_t rows, std::int64_t columns, std::int64_t stride,
                                        std::int64_t batch_stride);
  [[nodiscard]] static MatmulColumns of(const Matrix& m);
  /// Returns the number of elements from the first one to the last one of a batch.
  [[nodiscard]] std::int64_t extent(std::int64_t batch) const {
    return (batch - 1) * batch_stride + (count - 1) * stride + length;
  }
  [[nodiscard]] MatrixLayout layout(cudaDataType type, std::int64_t batch) const;
};

/// Returns the alignment in bytes of a pointer, up to 256.
[[nodiscard]] std::uint32_t alignment(const void* pointer);

struct MatmulCall {
  using Key = std::array<std::int64_t, 18>;

  Operation operation;
  MatrixLayout left, right, out;        ///< layouts for cuBLASLt: b, a and c
  Key key;                              ///< all properties that determine cuBLASLt's choice
  std::array<std::int64_t, 3> extents;  ///< number of elements from the first to the last one of each layout

  [[nodiscard]] static MatmulCall of(const Matrix& a, const Matrix& b, const Product& c, std::int64_t batch);
};

}  // namespace fq::cuda
