#pragma once

/// cuBLASLt, loaded on the first product: programs start without it, and run on machines that do not have it.
/// CUDA builds only.

#include <cublasLt.h>

#include "fakequant/core/backend/cuda/runtime/handle.h"

namespace fq::cuda {

/// The functions of cuBLASLt, by their names without "cublasLt".
struct BlasLt {
  decltype(&::cublasLtCreate) Create;
  decltype(&::cublasLtGetStatusName) GetStatusName;
  decltype(&::cublasLtMatmul) Matmul;
  decltype(&::cublasLtMatmulAlgoGetHeuristic) MatmulAlgoGetHeuristic;
  decltype(&::cublasLtMatmulDescCreate) MatmulDescCreate;
  decltype(&::cublasLtMatmulDescDestroy) MatmulDescDestroy;
  decltype(&::cublasLtMatmulDescSetAttribute) MatmulDescSetAttribute;
  decltype(&::cublasLtMatmulPreferenceCreate) MatmulPreferenceCreate;
  decltype(&::cublasLtMatmulPreferenceDestroy) MatmulPreferenceDestroy;
  decltype(&::cublasLtMatmulPreferenceSetAttribute) MatmulPreferenceSetAttribute;
  decltype(&::cublasLtMatrixLayoutCreate) MatrixLayoutCreate;
  decltype(&::cublasLtMatrixLayoutDestroy) MatrixLayoutDestroy;
  decltype(&::cublasLtMatrixLayoutSetAttribute) MatrixLayoutSetAttribute;
};

/// Returns the functions linked into the program, or else from libcublasLt.so of the major version used in
/// the build. Throws BackendError if the library is not found.
[[nodiscard]] const BlasLt& blas_lt();

/// Throws BackendError with the call and the status.
void check(cublasStatus_t status, const char* call);

}  // namespace fq::cuda

#define FQ_BLAS(function, ...) \
  ::fq::cuda::check(::fq::cuda::blas_lt().function(__VA_ARGS__), "cublasLt" #function)
