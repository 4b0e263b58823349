#pragma once

#include "fakequant/calib/calibrator.h"
#include "fakequant/core/format.h"

namespace fq {

/// Block scales of (4,3), as NVFP4 has them, for one tensor: of the 126 positive E4M3 numbers c each range
/// takes the one whose scale c * g has the smallest squared error of fake quantization, the first of equals
/// (ModelOpt's FP8 scale sweep); g = largest |x| of the tensor / (448 * bound). amax is such that
/// Grid::block_scaled finds g and c again: c * g * bound. For that a range that has the largest |x|
/// of the tensor keeps it, c = 448. Memory: 4 bytes a range.
class ScaleSweepCalibrator final : public Calibrator {
 public:
  /// Ranges along the kept axes of `options`, and its num_bits, is_unsigned and narrow_range. Throws
  /// ArgumentError for formats other than integers, (4,3) and (2,1).
  explicit ScaleSweepCalibrator(const CalibratorOptions& options = {});

  [[nodiscard]] std::string_view method() const noexcept override { return "scale_sweep"; }

 protected:
  /// Throws ArgumentError for a second tensor: the first one's g is gone with it.
  void do_collect(const Tensor& x, float largest) override;
  [[nodiscard]] Tensor do_compute(const AmaxOptions& options) const override;
  void do_reset() override { amax_ = {}; }
  void do_save(StateDict& state) const override;
  void do_load(const StateDict& state) override;

 private:
  Axes axis_;
  Format format_;
  Tensor amax_;
};

}  // namespace fq
