#pragma once

/// Tensors filled and converted. As core/detail/convert.h, with its bits.

#include "fakequant/core/tensor.h"

namespace fq::cuda {

void fill(Tensor& out, double value);
void convert(const Tensor& in, Tensor& out);

}  // namespace fq::cuda
