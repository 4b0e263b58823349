#pragma once

/// Sums of f32 tensors in fixed point (rank_kernels.h), on the CPU.

#include <span>

#include "fakequant/core/tensor.h"

namespace fq::cpu {

void add_fixed(std::span<const Tensor> terms, int shift, Tensor& sums);
void from_fixed(const Tensor& sums, int shift, Tensor& out);

}  // namespace fq::cpu
