#pragma once

/// Tasks of one thread each.
///
/// A product is cut into tasks by its shape alone, and every task runs on one thread, also in oneDNN. The
/// order of every sum, and thus every bit, is therefore the same for any number of threads.

#include <cstdint>
#include <optional>

#include "fakequant/core/detail/threads.h"

namespace fq::cpu {

/// Runs on the calling thread, without an OpenMP region, which costs more than a small product.
template <class State, class F>
void alone(std::int64_t count, F&& f) {
  struct Count {
    int before = detail::threads();
    ~Count() { detail::set_threads(before); }
  } threads;
  detail::set_threads(1);
  State state;
  detail::FirstError error;
  for (std::int64_t i = 0; i < count; ++i) error.keep([&] { f(state, i); });
  error.rethrow();
}

/// Calls f(state, i) for every i < count, each call on one thread, with one `State` per thread. Rethrows the
/// first exception after the last task.
template <class State, class F>
void parallel_tasks(std::int64_t count, F&& f) {
#if !defined(_OPENMP)
  alone<State>(count, f);
#else
  if (count == 1) return alone<State>(count, f);
  detail::FirstError error;
#pragma omp parallel
  {
    detail::set_threads(1);  // for this task and its calls; the caller keeps its own count
    std::optional<State> state;
    const bool made = error.keep([&] { state.emplace(); });
#pragma omp for schedule(static)
    for (std::int64_t i = 0; i < count; ++i)
      if (made) error.keep([&] { f(*state, i); });
  }
  error.rethrow();
#endif
}

}  // namespace fq::cpu
