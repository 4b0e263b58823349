#include "fakequant/train/ranks/detail/run_end.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "fakequant/core/error.h"

namespace fq::detail {
namespace {

constexpr double kAtTheEnd = 24 * 3600;  // seconds; rank 0 may write large files
constexpr double kAfterFailure = 5;
constexpr auto kUntilEnded = std::chrono::seconds(10);  // by the rank that prints the message

}  // namespace

// Two communicators, because their time limits differ: a rank that failed does not wait for a day.
RunEnd::RunEnd() : ranks_(started_ranks(kAtTheEnd)), failed_(started_ranks(kAfterFailure)) {}

LastWord RunEnd::meet(int status, const std::string& message) const {
  if (ranks_->size() == 1) return {status, status != 0, message};
  std::vector<std::string> ends;
  try {
    // Each text is "<status> <message>". Ranks that failed gather among themselves, with the short limit.
    ends = (status == 0 ? *ranks_ : *failed_).gather(fmt::format("{} {}", status, message));
  } catch (const BackendError&) {
    return leave(std::max(status, 1), message);
  }
  const auto failure = std::ranges::find_if(ends, [](const auto& end) { return end[0] != '0'; });
  if (failure == ends.end()) return {};
  const auto rank = static_cast<int>(failure - ends.begin());
  const std::string text = failure->substr(failure->find(' ') + 1);
  return {std::atoi(failure->c_str()), rank == ranks_->rank(),
          rank == 0 ? text : fmt::format("{} (rank {})", text, rank)};
}

LastWord RunEnd::leave(int status, const std::string& message) const {
  const bool speaks = failed_->speaks_for_all();
  // The rank that speaks ends this process, too (abort_ranks).
  if (!speaks) std::this_thread::sleep_for(kUntilEnded);
  return {status, speaks,
          fmt::format("{} (rank {} of {} on {})", message, ranks_->rank(), ranks_->size(), host_name()),
          true};
}

}  // namespace fq::detail
