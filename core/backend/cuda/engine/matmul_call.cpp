#include "fakequant/core/backend/cuda/engine/matmul_call.h"

#include <limits>

#include <fmt/format.h>

#include "fakequant/core/error.h"

namespace fq::cuda {

MatmulTypes matmul_types(DType factor) {
  switch (factor) {
    case DType::f64:
      return {CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F, CUDA_R_64F};
    case DType::bf16:
      return {CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F, CUDA_R_32F};
    case DType::i8:
      return {CUDA_R_8I, CUDA_R_32I, CUBLAS_COMPUTE_32I, CUDA_R_32I};
    default:
      return {CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, CUDA_R_32F};
  }
}

MatmulColumns MatmulColumns::of(std::int64_t rows, std::int64_t columns, std::int64_t stride,
                                std::int64_t batch_stride) {
  const std::int64_t between = stride != 0 ? stride : columns;
  return {columns, rows, between, batch_stride != 0 ? batch_stride : rows * between};
}
MatmulColumns MatmulColumns::of(const Matrix& m) {
  return m.transposed ? of(m.columns, m.rows, m.stride, m.batch_stride)
                      : of(m.rows, m.columns, m.stride, m.batch_stride);
}

MatrixLayout MatmulColumns::layout(cudaDataType type, std::int64_t batch) const {
  MatrixLayout out;
  FQ_BLAS(MatrixLayoutCreate, out.out(), type, static_cast<std::uint64_t>(length),
          static_cast<std::uint64_t>(count), stride);
  if (batch == 1) return out;
  if (batch > std::numeric_limits<std::int32_t>::max())
    throw ArgumentError(fmt::format("[cuda] a batch of {} products: cuBLASLt takes at most 2^31 - 1", batch));
  const auto matrices = static_cast<std::int32_t>(batch);
  FQ_BLAS(MatrixLayoutSetAttribute, out.get(), CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &matrices,
          sizeof matrices);
  FQ_BLAS(MatrixLayoutSetAttribute, out.get(), CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &batch_stride,
          sizeof batch_stride);
  return out;
}

std::uint32_t alignment(const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer) | 256;
  return static_cast<std::uint32_t>(address & ~(address - 1));
}

MatmulCall MatmulCall::of(const Matrix& a, const Matrix& b, const Product& c, std::int64_t batch) {
  const MatmulTypes types = matmul_types(a.dtype);
  const auto left = MatmulColumns::of(b), right = MatmulColumns::of(a),
             out = MatmulColumns::of(a.rows, b.columns, c.stride, c.batch_stride);
  MatmulCall call;
  FQ_BLAS(MatmulDescCreate, call.operation.out(), types.compute, types.scale);
  const cublasOperation_t flip_left = b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t flip_right = a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  FQ_BLAS(MatmulDescSetAttribute, call.operation.get(), CUBLASLT_MATMUL_DESC_TRANSA, &flip_left,
          sizeof flip_left);
  FQ_BLAS(MatmulDescSetAttribute, call.operation.get(), CUBLASLT_MATMUL_DESC_TRANSB, &flip_right,
          sizeof flip_right);
  call.left = left.layout(types.factor, batch);
  call.right = right.layout(types.factor, batch);
  call.out = out.layout(types.product, batch);
  call.key = {types.factor,      b.transposed,      a.transposed,       c.added,           batch,
              left.length,       left.count,        left.stride,        left.batch_stride, right.length,
              right.count,       right.stride,      right.batch_stride, out.stride,        out.batch_stride,
              alignment(a.data), alignment(b.data), alignment(c.data)};
  return call;
}

}  // namespace fq::cuda
