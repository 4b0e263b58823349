#include "fakequant/calib/calibrator.h"

#include <algorithm>
#include <limits>

#include "fakequant/calib/cpu/ranges.h"
#include "fakequant/core/check.h"

namespace fq {

void Calibrator::collect(const Tensor& x) {
  FQ_CHECK(x.defined(), "calibrator", "the tensor is undefined: give a batch");
  FQ_CHECK(is_floating(x.dtype()), "calibrator", "the batch is {}: give f32, f16, bf16 or f64",
           name(x.dtype()));
  if (x.numel() == 0 || x.device().is_meta()) return;
  const Tensor values = x.to(DType::f32);
  do_collect(values);
  if (empty()) dtype_ = x.dtype() == DType::f64 ? DType::f32 : x.dtype();
  minimum_ = std::min(minimum_.value_or(std::numeric_limits<float>::max()), cpu::minimum(values));
}

Tensor Calibrator::compute_amax(const AmaxOptions& options) const {
  FQ_CHECK(!empty(), "calibrator", "nothing was collected: calibrate with at least one batch");
  return do_compute(options).to(dtype_);
}

void Calibrator::reset() {
  do_reset();
  minimum_.reset();
}

}  // namespace fq
