#include "fakequant/cli/system/ranks.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <thread>

#include <fmt/format.h>
#include <unistd.h>

#include "fakequant/cli/commands/version.h"
#include "fakequant/cli/system/standard_streams.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/train/ranks/detail/same_everywhere.h"

namespace fq::cli {
namespace {

constexpr double kAtTheEnd = 24 * 3600;  // rank 0 may have much to write
constexpr double kAfterFailure = 5;
constexpr auto kTurn = std::chrono::seconds(3);  // a launcher takes one to end those that wait

std::string host() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

bool shares_out(const std::vector<std::string>& arguments) {
  constexpr std::string_view kShared[]{"train", "qat", "calibrate", "evaluate", "predict", "sensitivity"};
  return !arguments.empty() && std::ranges::find(kShared, arguments.front()) != std::end(kShared);
}

}  // namespace

std::shared_ptr<Communicator> run_ranks() {
  static const auto ranks = started_ranks();
  return ranks;
}

LoaderOptions share_of_rank(LoaderOptions options) {
  options.part = run_ranks()->rank();
  options.parts = options.turn = run_ranks()->size();
  return options;
}

bool is_first_rank() { return launched().ranks <= 1 || launched().rank == 0; }

Ranks::Ranks(const std::vector<std::string>& arguments) {
  if (!is_first_rank()) silence();
  ranks_ = started_ranks(kAtTheEnd);
  failed_ = started_ranks(kAfterFailure);
  if (ranks_->size() == 1) return;
  FQ_CHECK(shares_out(arguments), "ranks",
           "{} processes were started: train and qat can be shared out, with --micro-batch, and calibrate, "
           "evaluate, predict and sensitivity; start one of this",
           ranks_->size());
  fq::detail::check_same_everywhere(*ranks_, {{"version", version_line()}, {"arguments", arguments}});
}

int Ranks::finish(int status, const std::string& message) {
  if (!ranks_ || ranks_->size() == 1) {
    if (status != 0) complain(message);
    return status;
  }
  std::vector<std::string> ends;
  try {
    auto& waiting = status == 0 ? *ranks_ : *failed_;
    ends = waiting.gather(fmt::format("{} {}", status, message));
  } catch (const BackendError&) {
    // The first that is left speaks, and ends the others.
    std::this_thread::sleep_for(std::min(ranks_->rank(), 10) * kTurn);
    speak();
    complain(fmt::format("{} (rank {} of {} on {})", message, ranks_->rank(), ranks_->size(), host()));
    abort_ranks(std::max(status, 1));
  }
  const auto failure = std::ranges::find_if(ends, [](const auto& end) { return end[0] != '0'; });
  if (failure == ends.end()) return 0;
  const std::string text = failure->substr(failure->find(' ') + 1);
  const auto rank = failure - ends.begin();
  complain(rank == 0 ? text : fmt::format("{} (rank {})", text, rank));
  return std::atoi(failure->c_str());
}

}  // namespace fq::cli
