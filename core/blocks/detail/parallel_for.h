#pragma once

/// Loops that are shared among threads where they are long.

#include <cstdint>

namespace fq::detail {

/// f(i) for every i < count, shared among threads where there is `much` to do. Otherwise no region of threads
/// is begun, not even one of this thread alone: that takes longer than a layer of one token does.
template <class F>
void parallel_for(std::int64_t count, bool much, F&& f) {
  if (!much) {
    for (std::int64_t i = 0; i < count; ++i) f(i);
    return;
  }
#pragma omp parallel for schedule(static)
  for (std::int64_t i = 0; i < count; ++i) f(i);
}

}  // namespace fq::detail
