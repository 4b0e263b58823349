#pragma once

/// Counting values into bins on the CPU; not a public header. Counts are the same for any number of threads.

#include <cstdint>
#include <span>

#include "fakequant/calib/cpu/count_kernels.h"

namespace fq::cpu {

/// Adds every |x| that the rule does not drop to its bin.
void count(std::span<const float> x, const BinRule& rule, std::span<std::int64_t> counts);

}  // namespace fq::cpu
