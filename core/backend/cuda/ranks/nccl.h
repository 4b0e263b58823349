#pragma once

/// NCCL, loaded when ranks first sum values on GPUs: programs start without it. CUDA builds only.

#include <nccl.h>

#include "fakequant/core/backend/cuda/runtime/handle.h"

namespace fq::cuda {

/// The functions of NCCL, by their names without "nccl".
struct Nccl {
  decltype(&::ncclGetErrorString) GetErrorString;
  decltype(&::ncclGetUniqueId) GetUniqueId;
  decltype(&::ncclCommInitRank) CommInitRank;
  decltype(&::ncclCommDestroy) CommDestroy;
  decltype(&::ncclCommGetAsyncError) CommGetAsyncError;
  decltype(&::ncclCommAbort) CommAbort;
  decltype(&::ncclAllReduce) AllReduce;
};

/// Returns the functions linked into the program, or else from libnccl.so.2. Throws BackendError if it is not
/// found.
[[nodiscard]] const Nccl& nccl();

/// Throws BackendError with the call and NCCL's description of the error.
void check(ncclResult_t status, const char* call);

}  // namespace fq::cuda

#define FQ_NCCL(function, ...) ::fq::cuda::check(::fq::cuda::nccl().function(__VA_ARGS__), "nccl" #function)
