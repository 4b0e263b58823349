#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fakequant/calib/calibrator.h"

namespace fq {

/// A histogram for each index of the kept axes. Each amax equals the result of a calibrator of the same
/// method on the elements of that index. Memory: 12 bytes a bin, up to `most_bins` at first; a
/// histogram that grows has up to Histogram::max_bins.
class PerAxisCalibrator final : public Calibrator {
 public:
  static constexpr std::int64_t most_bins = std::int64_t{1} << 24;  ///< of all first histograms together

  /// `method` as HistogramCalibrator, OnePassCalibrator or TwoPassCalibrator takes it, axes in `options`.
  /// Throws ArgumentError for another method, num_bins that a histogram refuses, and the numpy grid, which
  /// may end in the middle of a batch.
  PerAxisCalibrator(std::string_view method, const CalibratorOptions& options);

  [[nodiscard]] std::string_view method() const noexcept override { return method_; }
  [[nodiscard]] int passes() const noexcept override { return passes_; }
  void next_pass() override;

 protected:
  /// Throws ArgumentError when histograms of all ranges pass `most_bins`.
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
