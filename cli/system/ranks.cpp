#include "fakequant/cli/system/ranks.h"

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

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

int launched_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK"})
    if (const char* value = std::getenv(name); value != nullptr) return std::atoi(value);
  return 0;
}

std::string host() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

bool shares_out(const std::vector<std::string>& arguments) {
  return !arguments.empty() && (arguments.front() == "train" || arguments.front() == "qat");
}

}  // namespace

bool is_first_rank() { return launched_ranks() <= 1 || launched_rank() == 0; }

Ranks::Ranks(const std::vector<std::string>& arguments) {
  if (!is_first_rank()) silence();
  ranks_ = started_ranks(kAtTheEnd);
  failed_ = started_ranks(kAfterFailure);
  if (ranks_->size() == 1) return;
  FQ_CHECK(
      shares_out(arguments), "ranks",
      "{} processes were started: train and qat can be shared out, with --micro-batch; start one of this",
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
