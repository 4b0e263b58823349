#pragma once

/// cuBLASLt's kernels for a product, and the fastest of them.

#include <functional>
#include <vector>

#include "fakequant/core/backend/cuda/engine/matmul.h"
#include "fakequant/core/backend/cuda/runtime/stream.h"

namespace fq::cuda {

/// cuBLASLt's left and right factor, and where the product goes.
struct MatmulMemory {
  const void *left, *right, *out;
};

/// Up to `most` kernels that cuBLASLt names, the first first: each gives the same bits in every run. Throws
/// BackendError where there is none.
[[nodiscard]] std::vector<cublasLtMatmulAlgo_t> algorithms(cublasLtHandle_t handle, const MatmulCall& call,
                                                           const MatmulMemory& memory, std::int64_t workspace,
                                                           int most);

/// The one that takes the least time when each is run a few times in the stream, which is waited for; those
/// that fail are left out, and the first stays where a later one is no faster by a twentieth.
[[nodiscard]] cublasLtMatmulAlgo_t fastest(
    const std::vector<cublasLtMatmulAlgo_t>& all,
    const std::function<cublasStatus_t(const cublasLtMatmulAlgo_t&)>& run, cudaStream_t stream);

}  // namespace fq::cuda
