#pragma once

/// The number of threads operators run on. Set by OMP_NUM_THREADS or the number of cores; forward results
/// never depend on it. Built without OpenMP, our own loops have one, and these are oneDNN's.
///
/// oneDNN plans its products for `omp_get_max_threads()` threads and waits for all of them. OpenMP may give
/// fewer (OMP_THREAD_LIMIT, OMP_DYNAMIC, OMP_MAX_ACTIVE_LEVELS), which leaves sums unfinished or waits for
/// ever. So `threads()` and `set_threads()` start a team once and keep its real size as the number to use.

#include <exception>

namespace fq::detail {

/// Returns the number of threads that the next operator of this thread uses: what OpenMP really gives.
/// Engines call it before they plan work of oneDNN.
[[nodiscard]] int threads() noexcept;
/// Sets that number, at least 1, for the calling thread only. Where OpenMP gives fewer, these are used.
void set_threads(int count) noexcept;
/// Returns the number that OMP_NUM_THREADS or the cores ask for. Starts no thread.
[[nodiscard]] int requested_threads() noexcept;

/// The first of the exceptions that tasks of several threads end with.
class FirstError {
 public:
  /// Calls `task` and keeps what it throws; whether it threw nothing. From any thread.
  template <class F>
  bool keep(F&& task) {
    try {
      task();
      return true;
    } catch (...) {
#pragma omp critical(fakequant_task_error)
      if (!error_) error_ = std::current_exception();
    }
    return false;
  }
  /// Throws what was kept, if anything.
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::exception_ptr error_;
};

}  // namespace fq::detail
