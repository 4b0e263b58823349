#pragma once

/// A histogram of magnitudes that depends on the values only, not on the split into batches.

#include <cstdint>
#include <vector>

#include "fakequant/calib/histogram.h"
#include "fakequant/core/tensor.h"

namespace fq {

/// Bins are [k*2^e, (k+1)*2^e), with the least exponent e (at least -126) for which the largest magnitude is
/// in the first 2*num_bins bins. The width is a power of two, so the bin of a magnitude is found without
/// rounding, and wider bins are whole pairs of old bins. Any split and order of batches, collected or merged,
/// therefore gives the same counts. At least num_bins bins are below the largest magnitude, except for
/// magnitudes below 2^-125*num_bins. Memory: 2*num_bins counts of 64 bits.
class OnePassHistogram {
 public:
  static constexpr int min_exponent = -126;

  /// Throws ArgumentError unless num_bins is 2 .. 32768.
  explicit OnePassHistogram(int num_bins = 2048, bool skip_zeros = false);
  /// Restores a histogram. Throws ArgumentError unless it could have been collected: 2*num_bins counts, not
  /// negative, with a sum of at most 2^62 and the least exponent for them.
  OnePassHistogram(int num_bins, bool skip_zeros, int exponent, std::vector<std::int64_t> counts);

  /// Counts |x|. `x` is f32, finite, of any layout; `largest` is its largest magnitude.
  void collect(const Tensor& x, float largest);
  /// Adds the counts of `other`. Throws ArgumentError and changes nothing if num_bins or skip_zeros differ,
  /// or if the sum of all counts exceeds 2^62.
  void merge(const OnePassHistogram& other);

  /// Returns the bins up to the largest magnitude; empty if no magnitude reaches bin 1. The last edge is at
  /// most the largest float.
  [[nodiscard]] Histogram histogram() const;

  [[nodiscard]] int num_bins() const noexcept { return static_cast<int>(counts_.size() / 2); }
  [[nodiscard]] bool skip_zeros() const noexcept { return skip_zeros_; }
  /// The width of a bin is 2^exponent.
  [[nodiscard]] int exponent() const noexcept { return exponent_; }
  /// The 2*num_bins counts.
  [[nodiscard]] const std::vector<std::int64_t>& counts() const noexcept { return counts_; }

 private:
  void widen(int exponent);
  [[nodiscard]] int required_exponent(float largest) const;

  bool skip_zeros_;
  int exponent_ = min_exponent;
  std::vector<std::int64_t> counts_;
};

}  // namespace fq
