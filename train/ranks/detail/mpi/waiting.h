#pragma once

/// Waiting for other ranks, with a time limit.

#include <memory>
#include <thread>

#include "fakequant/train/ranks/detail/mpi/functions.h"
#include "fakequant/train/ranks/detail/roll_call.h"

namespace fq::mpi {

class Waiting {
 public:
  /// Waits at most `seconds` for each request.
  Waiting(double seconds, std::shared_ptr<const detail::RollCall> roll_call);

  /// Waits until the request of rank `own` is done. Throws BackendError with the missing ranks. Only the
  /// thread that made this object spins. Other threads sleep, to leave the processor to the thread that
  /// computes.
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
