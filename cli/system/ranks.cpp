#include "fakequant/cli/system/ranks.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "fakequant/cli/command.h"
#include "fakequant/cli/system/machine.h"
#include "fakequant/cli/system/streams.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/train/ranks/detail/collectives.h"

namespace fq::cli {
namespace {

/// Returns true for commands that do not support several processes. Help and wrong commands return false: one
/// process prints them.
bool is_for_one(const std::vector<std::string>& arguments) {
  constexpr std::string_view kShared[]{"train", "qat", "calibrate", "evaluate", "predict", "sensitivity"};
  if (arguments.empty()) return false;
  const std::string& first = arguments.front();
  if (first == "inspect") return std::ranges::find(arguments, "--calibration") == arguments.end();
  // `dispatch` handles --version and unknown commands, with one message for all ranks.
  const bool known = std::ranges::find(commands(), first, &Command::name) != commands().end();
  return (known || first == "--manual") && std::ranges::find(kShared, first) == std::end(kShared);
}

/// Silences the other ranks before one of them can fail.
fq::detail::RunEnd begin() {
  if (!is_first_rank()) silence();
  return {};
}

}  // namespace

std::shared_ptr<Communicator> run_ranks() {
  static const auto ranks = started_ranks();
  return ranks;
}

bool is_first_rank() { return launched().ranks <= 1 || launched().rank == 0; }

Ranks::Ranks(const std::vector<std::string>& arguments) : end_(begin()) {
  Communicator& ranks = end_.ranks();
  if (ranks.size() == 1) return;
  FQ_CHECK(!is_for_one(arguments), "ranks",
           "{} processes were started, and this command supports one. Several processes can run train and "
           "qat with --micro-batch, calibrate, evaluate, predict, sensitivity and inspect --calibration",
           ranks.size());
  fq::detail::check_same_everywhere(ranks, {{"version", version_line()}, {"arguments", arguments}});
}

int Ranks::finish(int status, std::string_view message) {
  if (end_.ranks().size() == 1) {
    if (status != 0) complain(message);
    return status;
  }
  const auto last = end_.meet(status, std::string(message));
  // One rank prints the message for all. It may be a rank that was silent until now.
  if (last.speaks) {
    speak();
    complain(last.message);
  }
  if (last.abort) abort_ranks(last.status);
  return last.status;
}

}  // namespace fq::cli
