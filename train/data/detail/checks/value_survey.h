#pragma once

/// Extremes of values, and samples that are not finite.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

namespace fq::detail {

/// What is seen of the values as they are stored.
struct ValueSurvey {
  double smallest = 0, largest = 0;
  std::int64_t rows = 0, bad_rows = 0, first_bad = -1;

  template <class T>
  void add(const T* values, std::int64_t count, std::int64_t row) {
    bool finite = true;
    for (std::int64_t i = 0; i < count; ++i) {
      const auto value = [&] {
        if constexpr (std::is_arithmetic_v<T>)
          return static_cast<double>(values[i]);
        else
          return static_cast<double>(static_cast<float>(values[i]));
      }();
      if (!std::isfinite(value)) {
        finite = false;
      } else {
        smallest = seen_ ? std::min(smallest, value) : value;
        largest = seen_ ? std::max(largest, value) : value;
        seen_ = true;
      }
    }
    ++rows;
    if (finite) return;
    if (bad_rows++ == 0) first_bad = row;
  }

 private:
  bool seen_ = false;
};

}  // namespace fq::detail
