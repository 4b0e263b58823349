#pragma once

/// CUDA error codes as exceptions.

#include <source_location>

#include <cuda_runtime_api.h>

#include "fakequant/core/error.h"

namespace fq::cuda {

/// Throws unless `code` is cudaSuccess: SystemError for too little memory, CannotCapture for errors that end
/// a capture, else BackendError. The message has the call, the name and text of the code, the source location
/// and, if possible, a remedy. Clears CUDA's own record of the error, so that the next call reports only its
/// own.
void check(cudaError_t code, const char* call, std::source_location place = std::source_location::current());

}  // namespace fq::cuda

#define FQ_CUDA(call) ::fq::cuda::check((call), #call)
