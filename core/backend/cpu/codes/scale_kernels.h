#pragma once

/// The scales that ranges give, for every vector instruction set.

#include <cstdint>

#include "fakequant/core/numerics/detail/grid_numbers.h"

namespace fq::cpu {

/// Ranges and scales with the bits of range_and_scale. Whether all were ranges, finite and not negative:
/// others stay, their scales are any numbers.
[[nodiscard]] bool range_scales(const detail::ScaleRule& rule, float* ranges, std::int64_t count,
                                float* scales);

}  // namespace fq::cpu
