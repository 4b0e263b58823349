#pragma once

/// The number of threads that operators use: OMP_NUM_THREADS, or the number of cores. Forward results do not
/// depend on it. Without OpenMP, our loops use one thread and the number applies to oneDNN only.
///
/// oneDNN plans its products for `omp_get_max_threads()` threads and waits for all of them. OpenMP may
/// provide fewer (OMP_THREAD_LIMIT, OMP_DYNAMIC, OMP_MAX_ACTIVE_LEVELS). Sums are then incomplete, or oneDNN
/// waits forever. `threads()` and `set_threads()` therefore start a team once and use its actual size.

#include <exception>

namespace fq::detail {

/// Returns the number of threads for the next operator of this thread: the number that OpenMP provides. Call
/// it before planning work of oneDNN.
[[nodiscard]] int threads() noexcept;
/// Sets the number of threads, at least 1, for the calling thread. If OpenMP provides fewer, those are used.
void set_threads(int count) noexcept;
/// Returns the number requested by OMP_NUM_THREADS or the number of cores. Starts no thread.
[[nodiscard]] int requested_threads() noexcept;

/// The first exception of tasks on several threads.
class FirstError {
 public:
  /// Calls `task` and stores its exception. Returns whether there was none. Thread-safe.
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
  /// Throws the stored exception, if any.
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::exception_ptr error_;
};

}  // namespace fq::detail
