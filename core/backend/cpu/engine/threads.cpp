#include "fakequant/core/detail/threads.h"

#include <algorithm>

#if defined(_OPENMP)
#include <omp.h>
#else
#include <dlfcn.h>
#endif

namespace fq::detail {

#if defined(_OPENMP)
int threads() noexcept { return omp_get_max_threads(); }
void set_threads(int count) noexcept { omp_set_num_threads(std::max(count, 1)); }
#else
namespace {

/// A function of the OpenMP that oneDNN brings, or null.
template <class Function>
Function* of_onednn(const char* name) noexcept {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

}  // namespace

int threads() noexcept {
  static auto* const get = of_onednn<int()>("omp_get_max_threads");
  return get == nullptr ? 1 : get();
}
void set_threads(int count) noexcept {
  static auto* const set = of_onednn<void(int)>("omp_set_num_threads");
  if (set != nullptr) set(std::max(count, 1));
}
#endif

}  // namespace fq::detail
