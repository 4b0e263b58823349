#pragma once

#include "fakequant/calib/calibrator.h"

namespace fq {

/// a = a + c * (amax(batch) - a), c = 1 - momentum, each operation rounded to f32; the first batch sets it
/// (PyTorch's MovingAverageMinMaxObserver, on magnitudes).
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
