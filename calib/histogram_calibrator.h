#pragma once

#include "fakequant/calib/calibrator.h"
#include "fakequant/calib/histogram.h"

namespace fq {

/// Counts |x| of all batches in a histogram whose range grows, and reads amax from it by percentile, entropy,
/// mean squared error or OCTAV. Per tensor only. 64-bit counts.
class HistogramCalibrator final : public Calibrator {
 public:
  /// `method` is what compute_amax uses when its options name none: "percentile", "entropy", "mse" or
  /// "octav"; "histogram" means percentile. Throws ArgumentError for another method, kept axes, or num_bins
  /// outside 2
  /// .. 65536.
  explicit HistogramCalibrator(std::string_view method = "percentile", const CalibratorOptions& options = {});

  [[nodiscard]] std::string_view method() const noexcept override { return method_; }
  [[nodiscard]] const Histogram& histogram() const noexcept { return histogram_; }

 protected:
  void do_collect(const Tensor& x, float largest) override;
  [[nodiscard]] Tensor do_compute(const AmaxOptions& options) const override;
  void do_reset() override { histogram_ = {}; }
  void do_save(StateDict& state) const override;
  void do_load(const StateDict& state) override;

 private:
  std::string method_;
  int num_bins_;
  bool skip_zeros_;
  HistogramGrid grid_;
  Histogram histogram_;
};

}  // namespace fq
