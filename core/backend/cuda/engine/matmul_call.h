#pragma once

/// A product as cuBLASLt is told of it. It computes the transpose of ours, from those of b and a: its
/// column-major matrices are our row-major ones.

#include <array>

#include "fakequant/core/backend/cuda/engine/blas_lt.h"
#include "fakequant/core/backend/cuda/engine/matmul.h"
#include "fakequant/core/backend/cuda/runtime/handle.h"

namespace fq::cuda {

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
