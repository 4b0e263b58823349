#pragma once

/// The number of threads operators run on. Set by OMP_NUM_THREADS or the number of cores; forward results
/// never depend on it. Built without OpenMP, our own loops have one, and these are oneDNN's.

namespace fq::detail {

/// Threads the next operator called from this thread uses.
[[nodiscard]] int threads() noexcept;
/// At least 1. For this thread only: each thread of the caller's own has its own count.
void set_threads(int count) noexcept;

}  // namespace fq::detail
