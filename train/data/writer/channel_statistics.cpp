#include "fakequant/train/data/writer/channel_statistics.h"

#include <cmath>
#include <limits>

#include "fakequant/core/detail/convert.h"

namespace fq::detail {

ChannelStatistics::ChannelStatistics(const SampleType& type)
    : type_(type),
      inner_(numel(type.shape) / type.shape[0]),
      smallest_(std::numeric_limits<double>::infinity()),
      largest_(-smallest_),
      sum_(std::size_t(type.shape[0])),
      squares_(sum_.size()) {}

bool ChannelStatistics::add(const std::byte* sample, bool in_training) {
  return visit_dtype(type_.dtype, "dataset", [&]<class T>(T) {
    const auto value_of = [](T stored) {
      if constexpr (std::is_arithmetic_v<T>)
        return static_cast<double>(stored);
      else
        return static_cast<double>(static_cast<float>(stored));
    };
    const auto* values = reinterpret_cast<const T*>(sample);
    const std::size_t channels = sum_.size();
    if (shift_.empty())
      for (std::size_t c = 0; c < channels; ++c) shift_.push_back(value_of(values[std::int64_t(c) * inner_]));
    bool finite = true;
    for (std::size_t c = 0; c < channels; ++c)
      for (std::int64_t i = 0; i < inner_; ++i, ++values) {
        const double value = value_of(*values), moved = value - shift_[c];
        finite &= std::isfinite(value);
        smallest_ = std::min(smallest_, value);
        largest_ = std::max(largest_, value);
        if (!in_training) continue;
        sum_[c] += moved;
        squares_[c] += moved * moved;
      }
    if (in_training) count_ += inner_;
    return finite;
  });
}

std::vector<double> ChannelStatistics::mean() const {
  std::vector<double> out(sum_.size());
  for (std::size_t c = 0; c < out.size() && count_ > 0; ++c) out[c] = shift_[c] + sum_[c] / double(count_);
  return out;
}

std::vector<double> ChannelStatistics::deviation() const {
  std::vector<double> out(sum_.size(), 1);
  for (std::size_t c = 0; c < out.size() && count_ > 0; ++c) {
    const double mean = sum_[c] / double(count_);
    const double variance = squares_[c] / double(count_) - mean * mean;
    if (variance > 1e-12 * squares_[c] / double(count_) && variance > 0) out[c] = std::sqrt(variance);
  }
  return out;
}

}  // namespace fq::detail
