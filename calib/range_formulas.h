#pragma once

/// The formulas of ranges that change with the step, for host and device; not a public header.

#include "fakequant/core/formulas.h"
#include "fakequant/core/grid_formulas.h"

namespace fq::detail {

/// The range that scales are made of; a NaN stays.
FQ_HD float used_range(float amax, float least, float factor) {
  return scalar::mul_(scalar::at_least(amax, least), factor);
}
/// A range that follows those of batches. One that is infinite or NaN moves nothing.
FQ_HD float moved_range(float amax, float batch, float momentum) {
  return is_range(batch) ? scalar::moving_average(amax, batch, momentum) : amax;
}

}  // namespace fq::detail
