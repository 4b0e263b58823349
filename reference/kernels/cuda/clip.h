#pragma once

/// Ranges as bounds of elements on a device, as reference/kernels/cpu/clip.h has them. Bounds may be on the
/// host.

#include "fakequant/core/tensor.h"

namespace fq::cuda {

void mask_within(const Tensor& x, const Tensor& amax, Tensor& mask);
void mask_between(const Tensor& x, const Tensor& lower, const Tensor& upper, Tensor& mask);
void clip(const Tensor& x, const Tensor& lower, const Tensor& upper, Tensor& y);
/// Sums of several bounds are made on the host, which waits.
void sum_beyond(const Tensor& x, const Tensor& dy, const Tensor& bound, bool above, Tensor& sums);

}  // namespace fq::cuda
