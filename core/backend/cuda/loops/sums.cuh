#pragma once

/// Sums with extra precision. Doubles are summed as doubles, floats as pairs of floats, which is many times
/// faster on GPUs with few units for doubles. Where floats overflow or underflow, so does a pair: squares
/// beyond 1.8e19 are infinite.

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "fakequant/core/numerics/number_formats.h"

namespace fq::cuda {

struct WideSum {
  double number;

  FQ_HD void add(double v) { number += v; }
  FQ_HD void add_product(double a, double b) { number += a * b; }
  FQ_HD void join(const WideSum& other) { number += other.number; }
  [[nodiscard]] FQ_HD double value() const { return number; }
};

/// Sum high + low with about 48 bits. `low` accumulates the rounding error of each addition (Knuth, "The art
/// of computer programming", volume 2, 4.2.2, theorem B) and of each product (by a fused multiply-add).
struct PairSum {
  float high, low;

  FQ_HD void add(float v) {
    const float sum = high + v, own = sum - high;
    low += (high - (sum - own)) + (v - own);
    high = sum;
  }
  FQ_HD void add_product(float a, float b) {
    const float product = a * b;
    low += std::fma(a, b, -product);
    add(product);
  }
  FQ_HD void join(const PairSum& other) {
    add(other.high);
    low += other.low;
  }
  /// Returns the sum. An infinite sum has no valid error term.
  [[nodiscard]] FQ_HD double value() const {
    return low == low ? static_cast<double>(high) + static_cast<double>(low) : static_cast<double>(high);
  }
};

/// Sum of numbers of type T, initialized with {}.
template <class T>
using SumOf = std::conditional_t<std::is_same_v<T, double>, WideSum, PairSum>;

/// Two sums computed together.
template <class T>
struct TwoSums {
  SumOf<T> first, second;

  /// Adds v - origin to the first sum, and its square to the second.
  FQ_HD void add_difference(T v, T origin) {
    const T d = v - origin;
    if constexpr (std::is_same_v<T, float>) {
      const float own = d - v, lost = (v - (d - own)) - (origin + own);
      first.low += lost;
      second.low += 2.0f * d * lost;
    }
    first.add(d);
    second.add_product(d, d);
  }
  FQ_HD void join(const TwoSums& other) {
    first.join(other.first);
    second.join(other.second);
  }
};

/// Functor for row_blocks.cuh.
struct JoinSums {
  template <class Sum>
  FQ_HD void operator()(Sum& a, const Sum& b) const {
    a.join(b);
  }
};

/// Reduction for reduce_channels: terms(sum, element, channel) adds the terms of an element.
template <class Sums, class Terms>
struct SumTerms {
  using Sum = Sums;
  Terms terms;
  FQ_HD Sum zero() const { return {}; }
  FQ_HD void add(Sum& sum, std::int64_t i, std::int64_t c) const { terms(sum, i, c); }
  FQ_HD void join(Sum& sum, const Sum& other) const { sum.join(other); }
};

/// Terms of sums that are only joined.
struct NoTerms {};

}  // namespace fq::cuda
