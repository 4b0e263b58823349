#pragma once

/// Formulas of ranges that change during training, for host and device.

#include "fakequant/core/numerics/detail/formulas.h"
#include "fakequant/core/numerics/detail/grid_formulas.h"

namespace fq::detail {

/// Returns the range that determines the scale; NaN stays.
FQ_HD float used_range(float amax, float least, float factor) {
  return scalar::mul_(scalar::clamp_min(amax, least), factor);
}
/// Returns the moving average with the range of a batch. An infinite or NaN batch range changes nothing.
FQ_HD float moved_range(float amax, float batch, float momentum) {
  return is_range(batch) ? scalar::moving_average(amax, batch, momentum) : amax;
}
/// Returns a range that was calibrated on zeros, raised to the range of a batch. A batch of zeros, infinity
/// or NaN changes nothing.
FQ_HD float grown_range(float amax, float batch) {
  return batch > least_amax && is_range(batch) && batch > amax ? batch : amax;
}
/// A candidate range of a search: amax * multiple, at most the largest float.
FQ_HD float amax_multiple(float amax, float multiple) {
  return scalar::min_(amax * multiple, 0x1.fffffep127f);
}

}  // namespace fq::detail
