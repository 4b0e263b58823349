#pragma once

/// Draws: random numbers that depend on their purpose only, not on earlier draws.

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <utility>

#include "fakequant/core/random.h"

namespace fq::detail {

/// A sequence of Philox words for a seed and two further numbers, for example an epoch and an index (their
/// low 32 bits).
class Draws {
 public:
  Draws(std::uint64_t seed, std::uint64_t first, std::uint64_t second) noexcept
      : key_{low(seed), low(seed >> 32)}, first_(low(first)), second_(low(second)) {}

  [[nodiscard]] std::uint64_t next() noexcept {
    const auto words = philox({low(count_), low(count_ >> 32), first_, second_}, key_);
    ++count_;
    return words[0] | static_cast<std::uint64_t>(words[1]) << 32;
  }
  /// Returns a uniform integer in [0, limit), limit > 0, without bias.
  [[nodiscard]] std::uint64_t below(std::uint64_t limit) noexcept {
    const std::uint64_t biased = (0 - limit) % limit;  // 2^64 mod limit
    for (;;)
      if (const std::uint64_t value = next(); value >= biased) return value % limit;
  }
  /// Returns a uniform number in [-1, 1).
  [[nodiscard]] double symmetric() noexcept { return static_cast<double>(next() >> 11) * 0x1p-52 - 1; }
  /// Returns a uniform number in [0, 1).
  [[nodiscard]] double uniform() noexcept { return static_cast<double>(next() >> 11) * 0x1p-53; }
  [[nodiscard]] double uniform(double low, double high) noexcept { return low + uniform() * (high - low); }
  /// Returns a normal number with mean 0 and deviation 1 (Box-Muller; the second number is not used).
  [[nodiscard]] double normal() noexcept {
    const double radius = std::sqrt(-2 * std::log(1 - uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }

  /// Shuffles `values` (Fisher-Yates).
  template <class Vector>
  void shuffle(Vector& values) noexcept {
    for (std::uint64_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[below(i)]);
  }

 private:
  static constexpr std::uint32_t low(std::uint64_t value) noexcept {
    return static_cast<std::uint32_t>(value);
  }

  std::array<std::uint32_t, 2> key_;
  std::uint32_t first_, second_;
  std::uint64_t count_ = 0;
};

}  // namespace fq::detail
