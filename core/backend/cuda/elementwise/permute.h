#pragma once

/// Transposition.

#include <vector>

#include "fakequant/core/tensor.h"

namespace fq::cuda {

/// As cpu::permute.
void permute(const Tensor& x, const std::vector<int>& axes, Tensor& y);

}  // namespace fq::cuda
