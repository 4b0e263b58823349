#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fakequant/calib/calibrator.h"

namespace fq {

/// A histogram for each index of the kept axes. Each amax equals the result of a calibrator of the same
/// method on the elements of this index. Memory: 12 bytes per bin, at first at most `most_bins` bins in all.
/// Each histogram may grow to Histogram::max_bins.
class PerAxisCalibrator final : public Calibrator {
 public:
  static constexpr std::int64_t most_bins = std::int64_t{1} << 24;  ///< limit of all new histograms

  /// `method` is a method of HistogramCalibrator, OnePassCalibrator or TwoPassCalibrator; `options` has the
  /// axes. Throws ArgumentError for another method, num_bins outside of the histogram's limits, and the numpy
  /// grid, which may fail in the middle of a batch.
  PerAxisCalibrator(std::string_view method, const CalibratorOptions& options);

  [[nodiscard]] std::string_view method() const noexcept override { return method_; }
  [[nodiscard]] int passes() const noexcept override { return passes_; }
  void next_pass() override;

 protected:
  /// Throws ArgumentError if the histograms of all ranges exceed `most_bins`.
  void do_collect(const Tensor& x, float) override;
  void do_merge(const Calibrator& other) override;
  [[nodiscard]] Tensor do_compute(const AmaxOptions& options) const override;
  void do_reset() override { ranges_.clear(); }
  void do_save(StateDict& state) const override;
  void do_load(const StateDict& state) override;

 private:
  using Ranges = std::vector<std::unique_ptr<Calibrator>>;
  [[nodiscard]] Ranges make(std::int64_t count) const;

  std::string method_;
  int passes_;
  CalibratorOptions options_;  // of one range
  Axes axis_;
  Shape shape_;  // of the ranges
  Ranges ranges_;
};

}  // namespace fq
