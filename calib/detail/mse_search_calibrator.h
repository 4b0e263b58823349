#pragma once

#include <vector>

#include "fakequant/calib/calibrator.h"
#include "fakequant/core/format.h"

namespace fq {

/// amax = the multiple of the first batch's largest |x| with the smallest sum of squared errors of fake
/// quantization over all batches; the first of equals wins. Per tensor or for each index of the kept axes
/// (ModelOpt's MseCalibrator, except that it gets the largest |x| of all batches). Multiples are
/// torch.linspace(start_multiplier, stop_multiplier, ceil((stop - start) / step) + 1). Fake quantization is
/// ModelOpt's, with num_bits, is_unsigned and narrow_range. Batches of zeros are skipped in the choice of the
/// first batch. As long as no value is below 0, the errors of unsigned integers are summed too, because the
/// sign is chosen later. If all errors overflow f32, amax is the largest |x|. Memory: 8 bytes per multiple
/// and range, 16 with unsigned errors.
class MseSearchCalibrator final : public Calibrator {
 public:
  static constexpr int most_multiples = 4096;

  /// Throws ArgumentError for formats other than integers, (4,3) and (2,1), for more than `most_multiples`
  /// multiples, and unless 0 < start <= stop and 0 < step.
  explicit MseSearchCalibrator(const CalibratorOptions& options = {});

  [[nodiscard]] std::string_view method() const noexcept override { return "mse_search"; }
  [[nodiscard]] const std::vector<float>& multiples() const noexcept { return multiples_; }

 protected:
  void do_collect(const Tensor& x, float) override;
  /// Uses is_unsigned only. Throws ArgumentError for an unsigned range of a signed format if a value was
  /// below 0.
  [[nodiscard]] Tensor do_compute(const AmaxOptions& options) const override;
  void do_reset() override;
  void do_save(StateDict& state) const override;
  void do_load(const StateDict& state) override;

 private:
  Axes axis_;
  Format format_;
  std::vector<float> multiples_;
  Tensor first_;  // largest |x| of the first batch; candidates are its multiples
  std::vector<double> errors_, unsigned_errors_;
};

}  // namespace fq
