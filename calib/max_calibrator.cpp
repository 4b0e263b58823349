#include <algorithm>

#include "fakequant/calib/calibrator.h"
#include "fakequant/calib/detail/calib_methods.h"
#include "fakequant/calib/detail/ranges.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/state_dict.h"

namespace fq {

std::unique_ptr<Calibrator> detail::make_max(const CalibratorOptions& options) {
  return std::make_unique<MaxCalibrator>(options.axis);
}

// Ranges are kept on the host, as they are small.
void MaxCalibrator::raise(const Tensor& amax) {
  if (!amax_.defined()) {
    amax_ = amax.clone();
    return;
  }
  FQ_CHECK(amax.shape() == amax_.shape(), "max_calibrator",
           "this batch has amax of shape {}, earlier ones {}: use batches of one shape, or call reset()",
           to_string(amax.shape()), to_string(amax_.shape()));
  auto* a = amax_.mutable_data<float>();
  const auto* b = amax.data<float>();
  for (std::int64_t i = 0; i < amax_.numel(); ++i) a[i] = std::max(a[i], b[i]);
}

void MaxCalibrator::do_collect(const Tensor& x, float largest) {
  // `largest` is the range of the whole batch already.
  raise(axis_.empty() ? Tensor::scalar(largest) : detail::amax(x, axis_, "max_calibrator").to(Device::cpu()));
}

void MaxCalibrator::do_merge(const Calibrator& other) {
  const auto* from = dynamic_cast<const MaxCalibrator*>(&other);
  FQ_CHECK(from != nullptr && from->axis_ == axis_, "merge",
           "the calibrators keep different axes: calibrate both with one descriptor");
  if (!other.empty()) raise(from->amax_);
}

Tensor MaxCalibrator::do_compute(const AmaxOptions&) const { return amax_.clone(); }

void MaxCalibrator::do_save(StateDict& state) const { state.set("amax", amax_.clone()); }

void MaxCalibrator::do_load(const StateDict& state) {
  amax_ = detail::loaded_amax(state.at("amax"), "max_calibrator");
}

std::unique_ptr<Calibrator> detail::make_moving_average(const CalibratorOptions& options) {
  return std::make_unique<MovingAverageCalibrator>(options.axis, options.momentum);
}

MovingAverageCalibrator::MovingAverageCalibrator(Axes axis, double momentum)
    // torch's averaging constant: amax += (1 - momentum) * (batch - amax).
    : axis_(std::move(axis)), constant_(static_cast<float>(1.0 - momentum)) {
  FQ_CHECK(momentum >= 0 && momentum < 1, "moving_average_calibrator",
           "momentum is {}: use 0 .. 1, less than 1", momentum);
}

void MovingAverageCalibrator::do_collect(const Tensor& x, float largest) {
  Tensor batch = axis_.empty() ? Tensor::scalar(largest)
                               : detail::amax(x, axis_, "moving_average_calibrator").to(Device::cpu());
  if (!amax_.defined()) {
    amax_ = std::move(batch);
    return;
  }
  FQ_CHECK(batch.shape() == amax_.shape(), "moving_average_calibrator",
           "this batch has amax of shape {}, earlier ones {}: use batches of one shape, or call reset()",
           to_string(batch.shape()), to_string(amax_.shape()));
  // The kernel of running ranges, so that calibration and training give the same bits.
  detail::move_ranges(amax_, batch, constant_);
}

Tensor MovingAverageCalibrator::do_compute(const AmaxOptions&) const { return amax_.clone(); }

void MovingAverageCalibrator::do_save(StateDict& state) const { state.set("amax", amax_.clone()); }

void MovingAverageCalibrator::do_load(const StateDict& state) {
  amax_ = detail::loaded_amax(state.at("amax"), "moving_average_calibrator");
}

}  // namespace fq
