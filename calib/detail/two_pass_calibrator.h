#pragma once

#include <string>

#include "fakequant/calib/calibrator.h"
#include "fakequant/calib/histogram.h"

namespace fq {

/// Finds the largest magnitude of all data in the first pass, then counts |x| in even bins up to it. This is
/// the finest histogram with this number of bins, for any split and order of batches, at twice the time. Per
/// tensor only.
class TwoPassCalibrator final : public Calibrator {
 public:
  /// `method` is "two_pass" (percentile), "two_pass_entropy", "two_pass_mse" or "two_pass_octav". It is the
  /// default of AmaxOptions::method. Uses num_bins and skip_zeros of the options. Throws ArgumentError for
  /// another method, kept axes, or num_bins outside of 2 .. 65536.
  explicit TwoPassCalibrator(std::string_view method = "two_pass", const CalibratorOptions& options = {});

  [[nodiscard]] std::string_view method() const noexcept override { return method_; }
  [[nodiscard]] int passes() const noexcept override { return 2; }
  /// Starts counting. Later batches with a larger value than the first pass throw ArgumentError, and so does
  /// `compute_amax` before this call.
  void next_pass() override { counting_ = true; }
  [[nodiscard]] const Histogram& histogram() const noexcept { return histogram_; }

 protected:
  void do_collect(const Tensor& x, float largest) override;
  /// Requires both in the first pass, or both in the second pass with the same largest magnitude.
  void do_merge(const Calibrator& other) override;
  [[nodiscard]] Tensor do_compute(const AmaxOptions& options) const override;
  void do_reset() override;
  void do_save(StateDict& state) const override;
  void do_load(const StateDict& state) override;

 private:
  std::string method_;
  int num_bins_;
  bool skip_zeros_;
  bool counting_ = false;
  float largest_ = 0;
  Histogram histogram_;
};

}  // namespace fq
