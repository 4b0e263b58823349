#pragma once

/// Transposition.

#include <vector>

#include "fakequant/core/tensor.h"

namespace fq::cpu {

/// y's axis i is x's axis axes[i]. Elements of 1, 2, 4 or 8 bytes, or bits; any layout of x, y
/// row-major.
void permute(const Tensor& x, const std::vector<int>& axes, Tensor& y);

}  // namespace fq::cpu
