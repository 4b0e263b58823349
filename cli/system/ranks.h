#pragma once

/// The processes of one run, started by mpiexec or Slurm.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fakequant/train/ranks/communicator.h"
#include "fakequant/train/ranks/detail/run_end.h"

namespace fq::cli {

/// Makes this process a rank of the run. Ranks other than 0 print nothing. Every process constructs it first.
///
/// Throws ArgumentError on all ranks if their versions or arguments differ, and for a command that does not
/// support several processes.
class Ranks {
 public:
  explicit Ranks(const std::vector<std::string>& arguments);

  /// Ends the run. `status` is the exit status of this rank. Waits for the other ranks, prints one message
  /// for all and returns the status of the run. Ends all processes if a rank does not come because it died or
  /// waits for a failed rank.
  int finish(int status, std::string_view message);

 private:
  fq::detail::RunEnd end_;
};

/// Returns true on the rank that writes files.
[[nodiscard]] bool is_first_rank();
/// Returns the processes of this run; one process without mpiexec or Slurm.
[[nodiscard]] std::shared_ptr<Communicator> run_ranks();

}  // namespace fq::cli
