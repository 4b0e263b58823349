#pragma once

#include "fakequant/calib/calibrator.h"

namespace fq {

/// amax = the largest |x| of all batches, per tensor or for each index of the kept axes (ModelOpt's
/// MaxCalibrator).
class MaxCalibrator final : public Calibrator {
 public:
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

}  // namespace fq
