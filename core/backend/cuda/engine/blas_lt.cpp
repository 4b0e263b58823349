#include "fakequant/core/backend/cuda/engine/blas_lt.h"

#include <string>

#include <dlfcn.h>
#include <fmt/format.h>

#include "fakequant/core/backend/cuda/engine/blas_lt_paths.h"
#include "fakequant/core/error.h"

namespace fq::cuda {
namespace {

/// Opens the library, unless the program is linked with cuBLASLt.
void* open_library() {
  if (dlsym(RTLD_DEFAULT, "cublasLtMatmul") != nullptr) return RTLD_DEFAULT;
  return open_first(
      blas_lt_paths(binary_path(reinterpret_cast<const void*>(&open_library)), CUBLAS_VER_MAJOR));
}

struct Symbols {
  void* library;

  // A library of another version may lack a function.
  template <class F>
  void find(const char* name, F& function) const {
    void* symbol = dlsym(library, name);
    if (symbol == nullptr)
      throw BackendError(fmt::format("[cuda] libcublasLt has no {}: install the library of CUDA {}", name,
                                     CUBLAS_VER_MAJOR));
    function = reinterpret_cast<F>(symbol);
  }
};

// Called once. A failure throws at the first product, not at the start of the program.
BlasLt load() {
  const Symbols symbols{open_library()};
  BlasLt out{};
// Symbols are looked up by name, so that the program is not linked with cuBLASLt.
#define FQ_FIND(function) symbols.find("cublasLt" #function, out.function)
  FQ_FIND(Create);
  FQ_FIND(GetStatusName);
  FQ_FIND(Matmul);
  FQ_FIND(MatmulAlgoGetHeuristic);
  FQ_FIND(MatmulDescCreate);
  FQ_FIND(MatmulDescDestroy);
  FQ_FIND(MatmulDescSetAttribute);
  FQ_FIND(MatmulPreferenceCreate);
  FQ_FIND(MatmulPreferenceDestroy);
  FQ_FIND(MatmulPreferenceSetAttribute);
  FQ_FIND(MatrixLayoutCreate);
  FQ_FIND(MatrixLayoutDestroy);
  FQ_FIND(MatrixLayoutSetAttribute);
#undef FQ_FIND
  return out;
}

}  // namespace

const BlasLt& blas_lt() {
  static const BlasLt functions = load();
  return functions;
}

void check(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw BackendError(fmt::format("[cuda] {} failed: {}", call, blas_lt().GetStatusName(status)));
}

}  // namespace fq::cuda
