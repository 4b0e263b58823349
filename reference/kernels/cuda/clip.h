#pragma once

/// Ranges as bounds of elements on a device: masks, clipping, gradients of bounds. Bounds are f32, row-major,
/// on the host or the device, and broadcast to x by NumPy's rule.

#include "fakequant/core/tensor.h"

namespace fq::cuda {

/// u1, row-major, of the shape of x (f32, f16 or bf16, any layout): |x| <= amax.
[[nodiscard]] Tensor mask_within(const Tensor& x, const Tensor& amax);
/// The same: lower < x < upper.
[[nodiscard]] Tensor mask_between(const Tensor& x, const Tensor& lower, const Tensor& upper);

/// y = max(min(x, upper), lower) as scalar::clip_to has it; f32, row-major.
void clip(const Tensor& x, const Tensor& lower, const Tensor& upper, Tensor& y);
/// The sum of dy where x <= bound, or x >= bound with `above`; x and dy f32, row-major, bound of one element.
/// f64 of one element, summed in double.
[[nodiscard]] Tensor sum_beyond(const Tensor& x, const Tensor& dy, const Tensor& bound, bool above);

}  // namespace fq::cuda
