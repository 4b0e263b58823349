#pragma once

/// Candidate cuBLASLt kernels for a product, and choice of the fastest.

#include <functional>
#include <vector>

#include "fakequant/core/backend/cuda/engine/matmul.h"
#include "fakequant/core/backend/cuda/runtime/stream.h"

namespace fq::cuda {

/// Addresses of cuBLASLt's left and right factor and of the product.
struct MatmulMemory {
  const void *left, *right, *out;
};

/// Returns up to `most` kernels that cuBLASLt proposes, best first. Each gives the same bits in every run.
/// Throws BackendError if there is none.
[[nodiscard]] std::vector<cublasLtMatmulAlgo_t> algorithms(cublasLtHandle_t handle, const MatmulCall& call,
                                                           const MatmulMemory& memory, std::int64_t workspace,
                                                           int most);

/// Runs each kernel a few times in the stream, waits, and returns the fastest. Skips kernels that fail. A
/// later kernel must be faster than the best one before it by more than a twentieth.
[[nodiscard]] cublasLtMatmulAlgo_t fastest(
    const std::vector<cublasLtMatmulAlgo_t>& all,
    const std::function<cublasStatus_t(const cublasLtMatmulAlgo_t&)>& run, cudaStream_t stream);

}  // namespace fq::cuda
