#pragma once

/// Mean and variance of int32 numbers from exact integer sums, for host and device. The bits do not depend on
/// the order of the numbers, the device, or the number of threads and processes.

#include <cstdint>

#include "fakequant/core/numerics/number_formats.h"

namespace fq::detail {

/// Unsigned integer of 128 bits.
struct WideInteger {
  std::uint64_t high, low;

  /// Returns a * b.
  FQ_HD static WideInteger product(std::uint64_t a, std::uint64_t b) {
    constexpr std::uint64_t word = 0xffffffffu;
    const std::uint64_t low_low = (a & word) * (b & word);
    const std::uint64_t middle = (a >> 32) * (b & word) + (low_low >> 32);
    const std::uint64_t other = (a & word) * (b >> 32) + (middle & word);
    return {(a >> 32) * (b >> 32) + (middle >> 32) + (other >> 32), (other << 32) | (low_low & word)};
  }
  /// Returns this - other, for other <= this.
  [[nodiscard]] FQ_HD WideInteger minus(const WideInteger& other) const {
    return {high - other.high - (low < other.low ? 1u : 0u), low - other.low};
  }
  /// Returns the nearest double, up to a rounding of each half.
  [[nodiscard]] FQ_HD double value() const {
    return static_cast<double>(high) * 0x1p64 + static_cast<double>(low);
  }
};

/// Sums of up to 2^32 - 1 numbers and of their squares, initialized with {}.
struct IntegerSums {
  std::int64_t sum;
  WideInteger squares;

  FQ_HD void add(std::int32_t v) { join({v, {0, static_cast<std::uint64_t>(std::int64_t{v} * v)}}); }
  FQ_HD void join(const IntegerSums& other) {
    sum += other.sum;
    squares.low += other.squares.low;
    squares.high += other.squares.high + (squares.low < other.squares.low ? 1u : 0u);
  }
  /// Return the mean and variance of `count` numbers; 0 without numbers.
  [[nodiscard]] FQ_HD double mean(std::int64_t count) const {
    return count == 0 ? 0.0 : static_cast<double>(sum) / static_cast<double>(count);
  }
  [[nodiscard]] FQ_HD double variance(std::int64_t count) const {
    if (count == 0) return 0.0;
    const auto n = static_cast<std::uint64_t>(count),
               magnitude = static_cast<std::uint64_t>(sum < 0 ? -sum : sum);
    WideInteger scaled = WideInteger::product(squares.low, n);
    scaled.high += squares.high * n;
    // n^2 times the variance: n * sum of squares - sum^2, exact and below 2^127.
    const double root = static_cast<double>(n);
    return scaled.minus(WideInteger::product(magnitude, magnitude)).value() / (root * root);
  }
};

}  // namespace fq::detail
