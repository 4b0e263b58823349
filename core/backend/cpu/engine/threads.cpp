#include "fakequant/core/detail/threads.h"

#include <algorithm>

#if defined(_OPENMP)
#include <omp.h>
#endif

namespace fq::detail {

#if defined(_OPENMP)
int threads() noexcept { return omp_get_max_threads(); }
void set_threads(int count) noexcept { omp_set_num_threads(std::max(count, 1)); }
#else
int threads() noexcept { return 1; }
void set_threads(int) noexcept {}
#endif

}  // namespace fq::detail
