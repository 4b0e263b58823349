#pragma once

/// Gradients of codes for every vector instruction set: scaling for products, packed masks, and shares of
/// ranges.

#include <cstdint>

#include "fakequant/core/numerics/detail/grid_numbers.h"
#include "fakequant/core/numerics/number_formats.h"

namespace fq::cpu {

/// Computes out[i] = bf16(dy[i] * scale[i % width]), with the bits of number_formats.h. width is a multiple
/// of 16.
void scale_to_bf16(const float* dy, std::int64_t count, std::int64_t width, const float* scale,
                   bfloat16* out);
/// Computes the same values as floats.
void scale_to_bf16(const float* dy, std::int64_t count, std::int64_t width, const float* scale, float* out);
/// Scales one row, and adds the unscaled row to `sums`.
void scale_and_sum(const float* dy, std::int64_t count, const float* scale, bfloat16* out, float* sums);
void scale_and_sum(const float* dy, std::int64_t count, const float* scale, float* out, float* sums);

/// Computes y[i] = fl(fl(y[i] * scale[i % width]) + bias[i % width]). width is a multiple of 16.
void scale_and_add(float* y, std::int64_t count, std::int64_t width, const float* scale, const float* bias);

/// Sets dx[i] = mask bit i set ? dy[i] : +0, for elements of 2, 4 or 8 bytes. `mask` starts on a byte; dx may
/// be dy. With `beyond_cache`, writes to dx bypass the caches.
void apply_mask(const void* dy, const std::uint8_t* mask, std::int64_t count, int bytes, void* dx,
                bool beyond_cache);

/// Number of lanes of a sum on every target: element i of a run is added to lane i % share_lanes, and the
/// lanes are added in order.
inline constexpr std::int64_t share_lanes = 16;
/// Number of codes tested together, a multiple of share_lanes.
inline constexpr std::int64_t end_group = 64;

/// Returns the sum of dy * clip_share.
[[nodiscard]] double clip_sum(const float* x, const float* dy, std::int64_t count,
                              const detail::GridRow& row);
/// Returns the sum of dy * lsq_share, where `q` are the values of the codes.
[[nodiscard]] double lsq_sum(const float* x, const float* q, const float* dy, std::int64_t count,
                             const detail::GridRow& row);
/// Adds the terms of clip_sum for a part of a run to the lanes. The part begins at a multiple of share_lanes.
void add_clip_shares(const float* x, const float* dy, std::int64_t count, const detail::GridRow& row,
                     double* lanes);

/// Returns the start of the first group of end_group codes with a code at an end of the range: at least
/// `upper` or at most -upper. Returns `count` if no group has one.
[[nodiscard]] std::int64_t find_end(const std::int8_t* codes, std::int64_t count, std::int8_t upper);
/// Searches unsigned codes, which have only an upper end.
[[nodiscard]] std::int64_t find_end(const std::uint8_t* codes, std::int64_t count, std::uint8_t upper);

}  // namespace fq::cpu
