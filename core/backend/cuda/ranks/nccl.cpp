#include "fakequant/core/backend/cuda/ranks/nccl.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "fakequant/core/backend/cuda/engine/blas_lt_paths.h"
#include "fakequant/core/error.h"

namespace fq::cuda {
namespace {

template <class F>
void find_function(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(library, name));
  if (function == nullptr)
    throw BackendError(fmt::format("[ranks] libnccl has no {}: install NCCL {} or newer", name, NCCL_MAJOR));
}

Nccl load_nccl() {
  void* library = RTLD_DEFAULT;
  // A program may be linked with NCCL itself.
  if (dlsym(library, "ncclAllReduce") == nullptr)
    library = open_first(
        nccl_paths(binary_path(reinterpret_cast<const void*>(&load_nccl)), NCCL_MAJOR, CUDART_VERSION / 1000),
        "sums over GPUs");
  Nccl out{};
#define FQ_FIND(function) find_function(library, "nccl" #function, out.function)
  FQ_FIND(GetErrorString);
  FQ_FIND(GetUniqueId);
  FQ_FIND(CommInitRank);
  FQ_FIND(CommDestroy);
  FQ_FIND(CommGetAsyncError);
  FQ_FIND(CommAbort);
  FQ_FIND(AllReduce);
#undef FQ_FIND
  return out;
}

}  // namespace

const Nccl& nccl() {
  static const Nccl functions = load_nccl();
  return functions;
}

void check(ncclResult_t status, const char* call) {
  if (status == ncclSuccess) return;
  throw BackendError(fmt::format("[ranks] {} failed: {}", call, nccl().GetErrorString(status)));
}

}  // namespace fq::cuda
