#pragma once

/// Waiting for ranks that may never come.

#include <memory>
#include <thread>

#include "fakequant/train/ranks/detail/mpi/functions.h"
#include "fakequant/train/ranks/detail/roll_call.h"

namespace fq::mpi {

class Waiting {
 public:
  /// So many seconds at most.
  Waiting(double seconds, std::shared_ptr<const detail::RollCall> roll_call);

  /// Until the request of rank `own` is done. Throws BackendError naming who did not come. A thread other
  /// than that which made this waits beside its work, and leaves it the processor.
  void until_done(Request& request, int own) const;
  [[nodiscard]] double seconds() const noexcept { return seconds_; }
  [[nodiscard]] const detail::RollCall& roll_call() const noexcept { return *roll_call_; }

 private:
  [[noreturn]] void throw_for_absent(int own) const;

  double seconds_;
  std::shared_ptr<const detail::RollCall> roll_call_;
  std::thread::id first_ = std::this_thread::get_id();
};

}  // namespace fq::mpi
