#pragma once

/// RunEnd: how the processes of a run end, with one message for all.

#include <memory>
#include <string>

#include "fakequant/train/ranks/communicator.h"

namespace fq::detail {

/// What is said and done when a process has ended its work.
struct LastWord {
  int status = 0;            ///< of the run: 0 where all ranks were done
  bool speaks = false;       ///< this process says the message
  std::string message = {};  ///< of the rank that failed, with its number and host
  bool abort = false;        ///< others do not come: they are to be ended with this one (abort_ranks)
};

/// Made first, by all ranks.
class RunEnd {
 public:
  RunEnd();

  [[nodiscard]] Communicator& ranks() const noexcept { return *ranks_; }
  /// This process is done (0), or has failed and would exit with that status and message. Waits for the
  /// others: for a day where it is done; where it failed five seconds, in which those come that failed like
  /// it, then lets the first of the ranks that wait speak for all.
  [[nodiscard]] LastWord meet(int status, const std::string& message) const;

 private:
  [[nodiscard]] LastWord leave(int status, const std::string& message) const;

  std::shared_ptr<Communicator> ranks_, failed_;
};

}  // namespace fq::detail
