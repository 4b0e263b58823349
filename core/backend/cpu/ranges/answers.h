#pragma once

/// Which class scores are largest at.

#include "fakequant/core/tensor.h"

namespace fq::cpu {

/// out[n] = the class that row n of `scores` [N, C], f32 or f64, is largest at, the first of equal ones; -1
/// for a row with a NaN. `out` i64 [N]; there are classes.
void answers(const Tensor& scores, Tensor& out);

}  // namespace fq::cpu
