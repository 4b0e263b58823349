#include "fakequant/train/data/writer/split.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "fakequant/core/detail/check.h"
#include "fakequant/train/data/detail/random.h"

namespace fq::detail {
namespace {

constexpr std::uint64_t kSplitSeed = 0x73706c6974;  // apart from the streams that shuffle and augment

using Rows = std::vector<std::int64_t>;

std::map<std::int64_t, Rows> rows_by_class(const Labels& labels, std::int64_t count) {
  std::map<std::int64_t, Rows> rows;
  if (labels.task != Task::classes) {
    rows[0].resize(std::size_t(count));
    std::iota(rows[0].begin(), rows[0].end(), 0);
    return rows;
  }
  const auto* values = labels.values.data<std::int64_t>();
  for (std::int64_t i = 0; i < count; ++i) rows[values[i]].push_back(i);
  return rows;
}

/// Whole numbers whose sums are as near as can be to those of what was asked for.
class EvenRounding {
 public:
  std::int64_t next(double wanted, std::int64_t most) {
    sum_ += wanted;
    const std::int64_t given = std::clamp<std::int64_t>(std::llround(sum_) - given_, 0, most);
    given_ += given;
    return given;
  }

 private:
  double sum_ = 0;
  std::int64_t given_ = 0;
};

}  // namespace

std::vector<std::uint8_t> split_samples(const Labels& labels, std::int64_t count, const SplitShares& shares) {
  const double rest = 1 - shares.validation - shares.test;
  FQ_CHECK(shares.validation >= 0 && shares.test >= 0 && rest >= -1e-9, "dataset",
           "shares of {} for validation and {} for the test: give 0 to 1, and no more than 1 together",
           shares.validation, shares.test);
  std::vector<std::uint8_t> groups(std::size_t(count), kTrain);
  EvenRounding test, validation;
  for (auto& [label, rows] : rows_by_class(labels, count)) {
    Draws(shares.seed ^ kSplitSeed, std::uint64_t(label), 0).shuffle(rows);
    const auto size = std::int64_t(rows.size());
    const std::int64_t most = rest > 1e-9 ? size - 1 : size;
    const std::int64_t tests = test.next(double(size) * shares.test, most);
    const std::int64_t held = validation.next(double(size) * shares.validation, most - tests);
    for (std::int64_t i = 0; i < tests + held; ++i)
      groups[std::size_t(rows[std::size_t(i)])] = i < tests ? kTest : kValidation;
  }
  return groups;
}

}  // namespace fq::detail
