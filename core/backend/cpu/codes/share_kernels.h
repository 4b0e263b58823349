#pragma once

/// What elements add to the gradient of their range, for every vector instruction set, with the same bits.

#include <cstdint>

#include "fakequant/core/numerics/detail/grid_numbers.h"

namespace fq::cpu {

/// Lanes of a sum on every target: element i of a run is added to lane i % share_lanes, the lanes are added
/// in their order.
inline constexpr std::int64_t share_lanes = 16;
/// Codes that are looked at together, a multiple of share_lanes.
inline constexpr std::int64_t end_group = 64;

/// sum of dy * share, the shares as clip_share has them.
[[nodiscard]] double clip_sum(const float* x, const float* dy, std::int64_t count,
                              const detail::GridRow& row);
/// The same as lsq_share has them; `q` are the values of the codes.
[[nodiscard]] double lsq_sum(const float* x, const float* q, const float* dy, std::int64_t count,
                             const detail::GridRow& row);
/// clip_sum of a part of a run, added to the lanes; the part begins at a multiple of share_lanes.
void add_clip_shares(const float* x, const float* dy, std::int64_t count, const detail::GridRow& row,
                     double* lanes);

/// Where the first group of end_group codes begins that has one at an end of the range, `upper` and above or
/// -upper and below; `count` where there is none.
[[nodiscard]] std::int64_t find_end(const std::int8_t* codes, std::int64_t count, std::int8_t upper);
/// The same of unsigned codes, which have an upper end.
[[nodiscard]] std::int64_t find_end(const std::uint8_t* codes, std::int64_t count, std::uint8_t upper);

}  // namespace fq::cpu
