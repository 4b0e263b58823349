#pragma once

/// Counting values into bins on the CPU; not a public header. Counts are the same for any number of threads.

#include <cstdint>
#include <span>

namespace fq::cpu {

/// Adds the |x| that are at most `top` to bin min(int(fl(fl(|x| * bins) / top)), bins - 1).
void count(std::span<const float> x, float top, bool skip_zeros, std::span<std::int64_t> counts);

}  // namespace fq::cpu
