#pragma once

/// The processes that mpiexec or Slurm started as one run of the command.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fakequant/train/ranks/communicator.h"
#include "fakequant/train/ranks/detail/run_end.h"

namespace fq::cli {

/// While it lives this process is one of them: all but rank 0 print nothing. Made first by each of them.
///
/// Throws ArgumentError on all ranks when they are of different versions or were given other arguments, and
/// where the command is not one that several processes share out.
class Ranks {
 public:
  explicit Ranks(const std::vector<std::string>& arguments);

  /// How the command ended here, 0 or what it would exit with. Waits for the others, prints one message for
  /// all and returns the status of the run; ends all processes when one of them does not come, which has died
  /// or waits for a rank that failed.
  int finish(int status, std::string_view message);

 private:
  fq::detail::RunEnd end_;
};

/// Whether files are this process's to write.
[[nodiscard]] bool is_first_rank();
/// The processes of this run of the command; one where there are no others.
[[nodiscard]] std::shared_ptr<Communicator> run_ranks();

}  // namespace fq::cli
