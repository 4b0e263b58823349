#pragma once

/// Initial range of a learned step size.

#include <vector>

#include "fakequant/calib/calibrator.h"

namespace fq {

/// Method "lsq" of make_calibrator. The mean is over all values of all batches, in double, with 64-bit
/// counts. Merged results are equal up to the rounding of sums. With skip_zeros, exact zeros are not counted.
class LsqCalibrator final : public Calibrator {
 public:
  explicit LsqCalibrator(Axes axis = {}, bool skip_zeros = false)
      : axis_(std::move(axis)), skip_zeros_(skip_zeros) {}

  [[nodiscard]] std::string_view method() const noexcept override { return "lsq"; }

 protected:
  void do_collect(const Tensor& x, float) override;
  void do_merge(const Calibrator& other) override;
  /// Throws ArgumentError for a float format, because its steps are not even.
  [[nodiscard]] Tensor do_compute(const AmaxOptions& options) const override;
  void do_reset() override;
  void do_save(StateDict& state) const override;
  void do_load(const StateDict& state) override;

 private:
  void add(const Shape& shape, const std::vector<double>& sums, const std::vector<std::int64_t>& counts);

  Axes axis_;
  bool skip_zeros_;
  Shape shape_;
  std::vector<double> sums_;  // of |x|
  std::vector<std::int64_t> counts_;
};

}  // namespace fq
