#pragma once

/// Counting values into bins on the CPU. Counts are the same for any number of threads.

#include <cstdint>
#include <span>

#include "fakequant/core/backend/cpu/ranges/count_kernels.h"
#include "fakequant/core/tensor.h"

namespace fq::cpu {

/// Adds every |x| that the rule does not drop to its bin.
void count(std::span<const float> x, const BinRule& rule, std::span<std::int64_t> counts);
void count(const Tensor& x, const BinRule& rule, std::span<std::int64_t> counts);

}  // namespace fq::cpu
