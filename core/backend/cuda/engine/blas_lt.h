#pragma once

/// cuBLASLt, loaded when the first product is asked for: programs start without it, and run on machines that
/// have none. CUDA builds only.

#include <cublasLt.h>

#include "fakequant/core/backend/cuda/runtime/handle.h"

namespace fq::cuda {

/// Its functions, under their names less "cublasLt".
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

/// The program's own where it is linked with it, else libcublasLt.so of the major version it was built with.
/// Throws BackendError where there is none.
[[nodiscard]] const BlasLt& blas_lt();

/// Throws BackendError naming the call and the status.
void check(cublasStatus_t status, const char* call);

}  // namespace fq::cuda

#define FQ_BLAS(function, ...) \
  ::fq::cuda::check(::fq::cuda::blas_lt().function(__VA_ARGS__), "cublasLt" #function)
