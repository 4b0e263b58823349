#pragma once

/// Tasks of one thread each.
///
/// A product is cut into tasks by its shape alone and every task runs on one thread, oneDNN included. So the
/// order of every sum, and with it every bit, is the same for any number of threads.

#include <cstdint>
#include <optional>

#include "fakequant/core/detail/threads.h"

namespace fq::cpu {

/// The calling thread alone, without a region of threads, which costs more than a small product.
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

/// Calls f(state, i) for every i < count, each on one thread, with one `State` a thread.
/// The first exception is thrown again after the last task.
template <class State, class F>
void parallel_tasks(std::int64_t count, F&& f) {
#if !defined(_OPENMP)
  alone<State>(count, f);
#else
  if (count == 1) return alone<State>(count, f);
  detail::FirstError error;
#pragma omp parallel
  {
    detail::set_threads(1);  // of this task and what it calls; the caller's own count stays
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
