#pragma once

/// What elements add to the gradient of their range, for every vector instruction set, with the same bits.

#include <cstdint>

#include "fakequant/core/numerics/detail/grid_numbers.h"

namespace fq::cpu {

/// sum of dy * share, the shares as clip_share has them.
[[nodiscard]] double clip_sum(const float* x, const float* dy, std::int64_t count,
                              const detail::GridRow& row);
/// The same as lsq_share has them; `q` are the values of the codes.
[[nodiscard]] double lsq_sum(const float* x, const float* q, const float* dy, std::int64_t count,
                             const detail::GridRow& row);

}  // namespace fq::cpu
