#pragma once

#include <vector>

#include "fakequant/calib/calibrator.h"
#include "fakequant/core/format.h"

namespace fq {

/// amax = the multiple of the first batch's largest |x| with the smallest sum of squared errors of fake
/// quantization over all batches, the first of equals, per tensor or for each index of the kept axes
/// (ModelOpt's MseCalibrator, which is given the largest |x| of all). Multiples are
/// torch.linspace(start_multiplier, stop_multiplier, ceil((stop - start) / step) + 1); fake quantization is
/// ModelOpt's of num_bits, is_unsigned and narrow_range. Where only zeros were seen, the first batch with
/// others counts as the first. While no value is below 0, the errors of unsigned integers with the same
/// number of bits are summed too, so that the choice of a sign can wait. Where all errors overflow f32, amax
/// is the largest |x|. Memory: 8 bytes for each multiple of each range, 16 with the unsigned ones.
class MseSearchCalibrator final : public Calibrator {
 public:
  static constexpr int most_multiples = 4096;

  /// Throws ArgumentError for formats other than integers, (4,3) and (2,1), and unless 0 < start <= stop,
  /// 0 < step and there are at most `most_multiples`.
  explicit MseSearchCalibrator(const CalibratorOptions& options = {});

  [[nodiscard]] std::string_view method() const noexcept override { return "mse_search"; }
  [[nodiscard]] const std::vector<float>& multiples() const noexcept { return multiples_; }

 protected:
  void do_collect(const Tensor& x, float) override;
  /// Reads is_unsigned only. Throws ArgumentError where that is set for a signed format and a value was below
  /// 0.
  [[nodiscard]] Tensor do_compute(const AmaxOptions& options) const override;
  void do_reset() override;
  void do_save(StateDict& state) const override;
  void do_load(const StateDict& state) override;

 private:
  Axes axis_;
  Format format_;
  std::vector<float> multiples_;
  Tensor first_;  // the largest |x| that multiples are of
  std::vector<double> errors_, unsigned_errors_;
};

}  // namespace fq
