#pragma once

/// Which samples go to which group of a data set.

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "fakequant/train/data/reader/sample_source.h"

namespace fq::detail {

/// The groups, in the order in which a file has them.
inline constexpr std::array<std::string_view, 3> kGroups{"train", "val", "test"};
inline constexpr std::uint8_t kTrain = 0, kValidation = 1, kTest = 2;

struct SplitShares {
  double validation = 0, test = 0.2;  ///< of the samples; what is left is for training
  std::uint64_t seed = 0;
};

/// The group of each of `count` samples, drawn by the seed alone; of each class as large a share, up to
/// rounding that evens out over the classes. A class keeps at least one sample for training, unless there is
/// no training. Throws ArgumentError unless both shares are 0 to 1 and so is their sum.
[[nodiscard]] std::vector<std::uint8_t> split_samples(const Labels& labels, std::int64_t count,
                                                      const SplitShares& shares);

}  // namespace fq::detail
