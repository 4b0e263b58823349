#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fakequant/calib/calibrator.h"
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

/// Counts |x| of all batches in a OnePassHistogram and reads amax from it as HistogramCalibrator. The result
/// does not depend on the split into batches or on their order, and calibrators merge. Per tensor only.
class OnePassCalibrator final : public Calibrator {
 public:
  /// `method` is "one_pass" (percentile), "one_pass_entropy", "one_pass_mse" or "one_pass_octav". It is the
  /// default of AmaxOptions::method. Uses num_bins and skip_zeros of the options. Throws ArgumentError for
  /// another method, kept axes, or num_bins outside of 2 .. 32768.
  explicit OnePassCalibrator(std::string_view method = "one_pass", const CalibratorOptions& options = {});

  [[nodiscard]] std::string_view method() const noexcept override { return method_; }
  [[nodiscard]] const OnePassHistogram& counts() const noexcept { return histogram_; }
  /// Largest magnitude. Unknown before the first batch, and after loading a state that lacks it.
  [[nodiscard]] std::optional<float> largest() const noexcept { return largest_; }

 protected:
  void do_collect(const Tensor& x, float largest) override;
  void do_merge(const Calibrator& other) override;
  [[nodiscard]] Tensor do_compute(const AmaxOptions& options) const override;
  void do_reset() override;
  void do_save(StateDict& state) const override;
  void do_load(const StateDict& state) override;

 private:
  std::string method_;
  OnePassHistogram histogram_;
  std::optional<float> largest_;
};

}  // namespace fq
