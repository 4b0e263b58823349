#pragma once

#include <optional>
#include <string>

#include "fakequant/calib/calibrator.h"
#include "fakequant/calib/detail/one_pass_histogram.h"

namespace fq {

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
