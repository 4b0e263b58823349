#pragma once

/// As fq::cpu has them, with its bits.

#include <span>

#include "fakequant/core/tensor.h"

namespace fq::cuda {

void add_fixed(std::span<const Tensor> terms, int shift, Tensor& sums);
void from_fixed(const Tensor& sums, int shift, Tensor& out);

}  // namespace fq::cuda
