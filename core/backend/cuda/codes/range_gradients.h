#pragma once

/// Gradients of ranges that are trained, on a GPU.

#include "fakequant/core/quantized.h"

namespace fq::cuda {

/// out = fl(sum over the elements of each range of dy * share, divided by `divisor`) * factor: shares as
/// `lsq_share` or `clip_share`, sums in double. Of one layout, row-major where the ranges are of blocks.
void amax_gradient(const Tensor& x, const QuantizedTensor& codes, const Tensor& dy, bool lsq, double divisor,
                   float factor, Tensor& out);

}  // namespace fq::cuda
