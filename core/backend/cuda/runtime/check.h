#pragma once

/// CUDA's answers as errors.

#include <source_location>

#include <cuda_runtime_api.h>

#include "fakequant/core/error.h"

namespace fq::cuda {

/// Throws unless `code` is cudaSuccess: SystemError for too little memory, CannotCapture for what ends a
/// capture, else BackendError. The message has
/// the call, the code's name and text, the place and, where something can be done, what. CUDA's own record of
/// the error is cleared, so that the next call tells its own.
void check(cudaError_t code, const char* call, std::source_location place = std::source_location::current());

}  // namespace fq::cuda

#define FQ_CUDA(call) ::fq::cuda::check((call), #call)
