#pragma once

/// The formulas of ranges that change with the step, for host and device.

#include "fakequant/core/numerics/detail/formulas.h"
#include "fakequant/core/numerics/detail/grid_formulas.h"

namespace fq::detail {

/// The range that scales are made of; a NaN stays.
FQ_HD float used_range(float amax, float least, float factor) {
  return scalar::mul_(scalar::at_least(amax, least), factor);
}
/// A range that follows those of batches. One that is infinite or NaN moves nothing.
FQ_HD float moved_range(float amax, float batch, float momentum) {
  return is_range(batch) ? scalar::moving_average(amax, batch, momentum) : amax;
}
/// A range that was calibrated on zeros, after a batch: at least that of the batch. A batch of zeros,
/// infinity or NaN changes nothing.
FQ_HD float grown_range(float amax, float batch) {
  return batch > least_amax && is_range(batch) && batch > amax ? batch : amax;
}
/// A candidate of a search: amax * multiple, at most the largest float.
FQ_HD float multiple_of(float amax, float multiple) { return scalar::min_(amax * multiple, 0x1.fffffep127f); }

}  // namespace fq::detail
