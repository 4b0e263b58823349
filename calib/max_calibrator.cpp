#include "fakequant/calib/max_calibrator.h"

#include <algorithm>

#include "fakequant/calib/detail/calib_methods.h"
#include "fakequant/calib/detail/ranges.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/state_dict.h"

namespace fq {

std::unique_ptr<Calibrator> detail::make_max(const CalibratorOptions& options) {
  return std::make_unique<MaxCalibrator>(options.axis);
}

void MaxCalibrator::raise(const Tensor& amax) {
  if (!amax_.defined()) {
    amax_ = amax.clone();
    return;
  }
  FQ_CHECK(amax.shape() == amax_.shape(), "max_calibrator",
           "amax of this batch has shape {}, of those before {}: collect batches of one shape, or reset()",
           to_string(amax.shape()), to_string(amax_.shape()));
  auto* a = amax_.mutable_data<float>();
  const auto* b = amax.data<float>();
  for (std::int64_t i = 0; i < amax_.numel(); ++i) a[i] = std::max(a[i], b[i]);
}

void MaxCalibrator::do_collect(const Tensor& x, float largest) {
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

}  // namespace fq
