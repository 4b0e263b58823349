#pragma once

#include <string>

#include "fakequant/calib/calibrator.h"
#include "fakequant/calib/histogram.h"

namespace fq {

/// Finds the largest magnitude of all of the data, then counts |x| in even bins from 0 to it: the finest
/// histogram with that number of bins, for any split into batches and any order, for twice the time. Per
/// tensor only.
class TwoPassCalibrator final : public Calibrator {
 public:
  /// `method` is "two_pass" (percentile), "two_pass_entropy", "two_pass_mse" or "two_pass_octav": what
  /// compute_amax uses when its options name none. Of the options it takes num_bins and skip_zeros. Throws
  /// ArgumentError for another method, kept axes, or num_bins outside of 2 .. 65536.
  explicit TwoPassCalibrator(std::string_view method = "two_pass", const CalibratorOptions& options = {});

  [[nodiscard]] std::string_view method() const noexcept override { return method_; }
  [[nodiscard]] int passes() const noexcept override { return 2; }
  /// Starts counting. Later batches with a value beyond the first pass are rejected
  /// (ArgumentError), as is `compute_amax` before this call.
  void next_pass() override { counting_ = true; }
  [[nodiscard]] const Histogram& histogram() const noexcept { return histogram_; }

 protected:
  void do_collect(const Tensor& x, float largest) override;
  /// Both in the first pass, or both in the second with one largest magnitude.
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
