#pragma once

/// Conversion of one element, for host and device.

#include <cmath>
#include <limits>
#include <type_traits>

#include "fakequant/core/numerics/number_formats.h"

namespace fq::detail {

/// Converts to integers by rounding half to even and saturating, with 0 for NaN. Converts to 16-bit floats
/// through f32.
template <class To>
[[nodiscard]] FQ_HD To from_double(double value) {
  if constexpr (std::is_same_v<To, float16> || std::is_same_v<To, bfloat16>) {
    return To(static_cast<float>(value));
  } else if constexpr (std::is_floating_point_v<To>) {
    return static_cast<To>(value);
  } else {
    using Limits = std::numeric_limits<To>;
    if (value != value) return 0;
    if (value <= static_cast<double>(Limits::min())) return Limits::min();
    if (value >= static_cast<double>(Limits::max())) return Limits::max();
    return static_cast<To>(std::nearbyint(value));
  }
}

template <class From>
[[nodiscard]] FQ_HD double as_double(From value) {
  if constexpr (std::is_same_v<From, float16> || std::is_same_v<From, bfloat16>)
    return static_cast<double>(static_cast<float>(value));
  else
    return static_cast<double>(value);
}

}  // namespace fq::detail
