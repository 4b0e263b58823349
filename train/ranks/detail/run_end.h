#pragma once

/// RunEnd: ends the processes of a run with one message.

#include <memory>
#include <string>

#include "fakequant/train/ranks/communicator.h"

namespace fq::detail {

/// How this process must end.
struct LastWord {
  int status = 0;            ///< exit status of the run; 0 if all ranks succeeded
  bool speaks = false;       ///< this process prints the message
  std::string message = {};  ///< of the rank that failed, with its number and host
  bool abort = false;        ///< other ranks are missing: end them, too (abort_ranks)
};

/// All ranks must create it before their work.
class RunEnd {
 public:
  RunEnd();

  [[nodiscard]] Communicator& ranks() const noexcept { return *ranks_; }
  /// Reports that this process succeeded (`status` 0), or failed with this exit status and message. Waits for
  /// the other ranks: one day after success, five seconds after a failure (enough for ranks with the same
  /// failure). If some ranks are missing then, the first waiting rank prints the message for all.
  [[nodiscard]] LastWord meet(int status, const std::string& message) const;

 private:
  [[nodiscard]] LastWord leave(int status, const std::string& message) const;

  std::shared_ptr<Communicator> ranks_, failed_;
};

}  // namespace fq::detail
