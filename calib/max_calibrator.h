#pragma once

/// Calibrators that follow the largest magnitudes of batches: of all of them, or their moving average.
/// make_calibrator (calib/calibrator.h) makes them by the names "max" and "moving_average".
///
///     MaxCalibrator channels(0);  // an amax for each index of axis 0, as weights have
///     channels.collect(weight);
///     const Tensor amax = channels.compute_amax();  // [64, 1, 1, 1] for weights [64, 32, 3, 3]

#include "fakequant/calib/calibrator.h"

namespace fq {

/// amax = the largest |x| of all batches, per tensor or for each index of the kept axes (ModelOpt's
/// MaxCalibrator). Nothing is clipped, and one outlier widens every step. It merges exactly, and keeps 4
/// bytes a range.
class MaxCalibrator final : public Calibrator {
 public:
  /// `axis` are the kept axes; none is per tensor.
  explicit MaxCalibrator(Axes axis = {}) : axis_(std::move(axis)) {}

  [[nodiscard]] std::string_view method() const noexcept override { return "max"; }

 protected:
  void do_collect(const Tensor& x, float largest) override;
  void do_merge(const Calibrator& other) override;
  [[nodiscard]] Tensor do_compute(const AmaxOptions& options) const override;
  void do_reset() override { amax_ = {}; }
  void do_save(StateDict& state) const override;
  void do_load(const StateDict& state) override;

 private:
  void raise(const Tensor& amax);

  Axes axis_;
  Tensor amax_;
};

/// amax moves towards the largest |x| of each batch: a = a + c * (amax(batch) - a), c = 1 - momentum, each
/// operation rounded to f32; the first batch sets it (PyTorch's MovingAverageMinMaxObserver, on magnitudes).
/// It is per tensor or for each index of the kept axes. The result depends on the order of batches: it does
/// not merge.
class MovingAverageCalibrator final : public Calibrator {
 public:
  /// Throws ArgumentError unless 0 <= momentum < 1.
  explicit MovingAverageCalibrator(Axes axis = {}, double momentum = 0.99);

  [[nodiscard]] std::string_view method() const noexcept override { return "moving_average"; }

 protected:
  void do_collect(const Tensor& x, float largest) override;
  [[nodiscard]] Tensor do_compute(const AmaxOptions& options) const override;
  void do_reset() override { amax_ = {}; }
  void do_save(StateDict& state) const override;
  void do_load(const StateDict& state) override;

 private:
  Axes axis_;
  float constant_;
  Tensor amax_;
};

}  // namespace fq
