#pragma once

#include "fakequant/calib/calibrator.h"
#include "fakequant/core/format.h"

namespace fq {

/// E4M3 scales of blocks (NVFP4) for one tensor, as in ModelOpt's FP8 scale sweep. For each range it chooses
/// the positive E4M3 number c (one of 126) whose scale c * g has the smallest squared error of fake
/// quantization; the first of equals wins. g = largest |x| of the tensor / (448 * bound). The result is amax
/// = c * g * bound, from which Grid::block_scaled finds g and c again. This requires that a range with the
/// largest |x| of the tensor keeps c = 448. Memory: 4 bytes per range.
class ScaleSweepCalibrator final : public Calibrator {
 public:
  /// Uses axis, num_bits, is_unsigned and narrow_range of the options. Throws ArgumentError for formats other
  /// than integers, (4,3) and (2,1).
  explicit ScaleSweepCalibrator(const CalibratorOptions& options = {});

  [[nodiscard]] std::string_view method() const noexcept override { return "scale_sweep"; }

 protected:
  /// Throws ArgumentError for a second tensor, because g depends on the first one.
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
