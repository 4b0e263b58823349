#pragma once

/// Mean and deviation of each channel, of values as they are stored.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "fakequant/train/data/reader/sample_source.h"

namespace fq::detail {

class ChannelStatistics {
 public:
  explicit ChannelStatistics(const SampleType& type);

  /// One sample. `in_training`: whether mean and deviation count it; extremes count every one. False when a
  /// value is NaN or infinite.
  [[nodiscard]] bool add(const std::byte* sample, bool in_training);
  [[nodiscard]] double smallest() const noexcept { return smallest_; }
  [[nodiscard]] double largest() const noexcept { return largest_; }
  [[nodiscard]] std::vector<double> mean() const;
  /// 1 for a channel of one value.
  [[nodiscard]] std::vector<double> deviation() const;

 private:
  SampleType type_;
  std::int64_t inner_, count_ = 0;  // values of a channel: of one sample, of all
  double smallest_, largest_;
  std::vector<double> shift_, sum_, squares_;  // of values less those of the first sample
};

}  // namespace fq::detail
