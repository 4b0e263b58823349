#pragma once

/// Ratios that may not be defined, and their means.

#include <cmath>
#include <cstdint>
#include <limits>

namespace fq::detail {

/// What a metric is that nothing was counted of.
inline constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();

[[nodiscard]] inline double ratio(std::int64_t a, std::int64_t b) {
  return b == 0 ? kUndefined : static_cast<double>(a) / static_cast<double>(b);
}

/// The mean of f(i) over those that are defined.
template <class F>
[[nodiscard]] double mean_of(std::size_t count, F&& f) {
  double sum = 0;
  std::int64_t defined = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double value = f(i);
    if (std::isnan(value)) continue;
    sum += value;
    ++defined;
  }
  return defined == 0 ? kUndefined : sum / static_cast<double>(defined);
}

}  // namespace fq::detail
