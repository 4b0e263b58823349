#pragma once

/// Counting values into bins on a device. The counts are the CPU's.

#include <span>

#include "fakequant/core/backend/cpu/ranges/count_kernels.h"
#include "fakequant/core/tensor.h"

namespace fq::cuda {

/// Adds every |x| that the rule does not drop to its bin; x f32. Waits for the counts.
void count(const Tensor& x, const cpu::BinRule& rule, std::span<std::int64_t> counts);

}  // namespace fq::cuda
