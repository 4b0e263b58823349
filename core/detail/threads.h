#pragma once

/// The number of threads operators run on. Set by OMP_NUM_THREADS or the number of cores; forward results
/// never depend on it. Built without OpenMP, our own loops have one, and these are oneDNN's.

#include <exception>

namespace fq::detail {

/// Threads the next operator called from this thread uses.
[[nodiscard]] int threads() noexcept;
/// At least 1. For this thread only: each thread of the caller's own has its own count.
void set_threads(int count) noexcept;

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
