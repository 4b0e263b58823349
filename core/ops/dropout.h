#pragma once

/// Dropout.

#include "fakequant/core/variable.h"

namespace fq::ops {

/// With `training`: each element is 0 with probability p, else x / (1 - p) (Srivastava et al. 2014). Which
/// ones is a function of this thread's random stream (random.h): seed, step, the count of dropouts in the
/// step, and the element's logical row-major index; not of layout, device or threads. f32 or f64; x's layout.
/// Without `training`, or with p = 0, it is x itself and no operator. Throws ArgumentError unless 0 <= p
/// <= 1.
[[nodiscard]] Variable dropout(const Variable& x, double p, bool training);

}  // namespace fq::ops
