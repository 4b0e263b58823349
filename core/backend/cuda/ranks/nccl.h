#pragma once

/// NCCL, loaded when ranks first sum what lies on GPUs: programs start without it. CUDA builds only.

#include <nccl.h>

#include "fakequant/core/backend/cuda/runtime/handle.h"

namespace fq::cuda {

/// Its functions, under their names less "nccl".
struct Nccl {
  decltype(&::ncclGetErrorString) GetErrorString;
  decltype(&::ncclGetUniqueId) GetUniqueId;
  decltype(&::ncclCommInitRank) CommInitRank;
  decltype(&::ncclCommDestroy) CommDestroy;
  decltype(&::ncclCommGetAsyncError) CommGetAsyncError;
  decltype(&::ncclCommAbort) CommAbort;
  decltype(&::ncclAllReduce) AllReduce;
};

/// The program's own where it is linked with it, else libnccl.so.2. Throws BackendError where there is none.
[[nodiscard]] const Nccl& nccl();

/// Throws BackendError naming the call and what NCCL says of it.
void check(ncclResult_t status, const char* call);

}  // namespace fq::cuda

#define FQ_NCCL(function, ...) ::fq::cuda::check(::fq::cuda::nccl().function(__VA_ARGS__), "nccl" #function)
