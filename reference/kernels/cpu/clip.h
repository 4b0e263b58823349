#pragma once

/// Ranges as bounds of elements: masks, clipping, gradients of bounds.
///
/// Common to all: x is row-major; bounds are f32, row-major, of one shape that broadcasts to x by NumPy's
/// rule (ArgumentError where it does not).

#include "fakequant/core/tensor.h"

namespace fq::cpu {

/// `mask`, u1, row-major, of the shape of x (f32, f16 or bf16): |x| <= amax. A NaN is never within.
void mask_within(const Tensor& x, const Tensor& amax, Tensor& mask);
/// The same: lower < x < upper.
void mask_between(const Tensor& x, const Tensor& lower, const Tensor& upper, Tensor& mask);

/// y = max(min(x, upper), lower) as scalar::clip_to has it; x and y f32.
void clip(const Tensor& x, const Tensor& lower, const Tensor& upper, Tensor& y);
/// The sums of dy where x <= bound, or x >= bound with `above`; x and dy f32. `sums`, of the shape of
/// `bound`, are f64 and summed in double.
void sum_beyond(const Tensor& x, const Tensor& dy, const Tensor& bound, bool above, Tensor& sums);

}  // namespace fq::cpu
