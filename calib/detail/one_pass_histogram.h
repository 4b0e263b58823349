#pragma once

/// A histogram of magnitudes that depends on the values only, not on how they came in batches.

#include <cstdint>
#include <vector>

#include "fakequant/calib/histogram.h"
#include "fakequant/core/tensor.h"

namespace fq {

/// Bins are [k*2^e, (k+1)*2^e), e the least exponent (at least -126) that leaves the largest magnitude in
/// less than 2*num_bins bins: a power of two, so that a magnitude is binned without rounding and widening the
/// bins joins them in whole pairs. Batches in any split and order, collected or merged, therefore give the
/// same counts; at least num_bins bins are below the largest magnitude (except for magnitudes below
/// 2^-125*num_bins). Memory is 2*num_bins counts of 64 bits.
class OnePassHistogram {
 public:
  static constexpr int min_exponent = -126;

  /// Throws ArgumentError unless num_bins is 2 .. 32768.
  explicit OnePassHistogram(int num_bins = 2048, bool skip_zeros = false);
  /// A saved one. Throws ArgumentError unless it could have been collected: 2*num_bins counts, not negative,
  /// 2^62 at most together, with the least exponent for them.
  OnePassHistogram(int num_bins, bool skip_zeros, int exponent, std::vector<std::int64_t> counts);

  /// `x` f32, finite, any layout; `largest` is its largest magnitude.
  void collect(const Tensor& x, float largest);
  /// Adds the counts of `other`. Throws ArgumentError, changing nothing, when num_bins or skip_zeros differ
  /// or the counts pass 2^62 together.
  void merge(const OnePassHistogram& other);

  /// The bins up to the one of the largest magnitude; empty when no magnitude reaches bin 1. The last edge is
  /// at most the largest float.
  [[nodiscard]] Histogram histogram() const;

  [[nodiscard]] int num_bins() const noexcept { return static_cast<int>(counts_.size() / 2); }
  [[nodiscard]] bool skip_zeros() const noexcept { return skip_zeros_; }
  /// The width of a bin is 2^exponent.
  [[nodiscard]] int exponent() const noexcept { return exponent_; }
  /// 2*num_bins of them.
  [[nodiscard]] const std::vector<std::int64_t>& counts() const noexcept { return counts_; }

 private:
  void widen(int exponent);
  [[nodiscard]] int required_exponent(float largest) const;

  bool skip_zeros_;
  int exponent_ = min_exponent;
  std::vector<std::int64_t> counts_;
};

}  // namespace fq
