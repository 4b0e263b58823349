#include "fakequant/calib/max_calibrator.h"

#include <algorithm>

#include "fakequant/calib/cpu/ranges.h"
#include "fakequant/core/check.h"
#include "fakequant/core/io/state_dict.h"

namespace fq {

void MaxCalibrator::do_collect(const Tensor& x) {
  Tensor batch = cpu::amax(x, axis_, "max_calibrator");
  cpu::check_finite(batch, "max_calibrator");
  if (!amax_.defined()) {
    amax_ = std::move(batch);
    return;
  }
  FQ_CHECK(batch.shape() == amax_.shape(), "max_calibrator",
           "amax of this batch has shape {}, of those before {}: collect batches of one shape, or reset()",
           to_string(batch.shape()), to_string(amax_.shape()));
  auto* a = amax_.mutable_data<float>();
  const auto* b = batch.data<float>();
  for (std::int64_t i = 0; i < amax_.numel(); ++i) a[i] = std::max(a[i], b[i]);
}

Tensor MaxCalibrator::do_compute(const AmaxOptions&) const { return amax_.clone(); }

void MaxCalibrator::do_save(StateDict& state) const { state.set("amax", amax_.clone()); }

void MaxCalibrator::do_load(const StateDict& state) {
  amax_ = cpu::loaded_amax(state.at("amax"), "max_calibrator");
}

}  // namespace fq
