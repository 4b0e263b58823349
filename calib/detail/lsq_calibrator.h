#pragma once

/// The range that learning of steps begins with.

#include <vector>

#include "fakequant/calib/calibrator.h"

namespace fq {

/// The method "lsq" of make_calibrator. The mean is of all values of all batches, in double; 64-bit counts.
/// It merges, up to the rounding of sums. With skip_zeros, exact zeros do not count.
class LsqCalibrator final : public Calibrator {
 public:
  explicit LsqCalibrator(Axes axis = {}, bool skip_zeros = false)
      : axis_(std::move(axis)), skip_zeros_(skip_zeros) {}

  [[nodiscard]] std::string_view method() const noexcept override { return "lsq"; }

 protected:
  void do_collect(const Tensor& x, float) override;
  void do_merge(const Calibrator& other) override;
  /// Throws ArgumentError for a float format, whose codes are not steps.
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
