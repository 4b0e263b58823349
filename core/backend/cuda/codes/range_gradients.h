#pragma once

/// Gradients of ranges that are trained, on a GPU.

#include <cstdint>
#include <optional>
#include <vector>

#include "fakequant/core/backend/ranged_values.h"
#include "fakequant/core/quantized.h"

namespace fq::cuda {

/// out = fl(sum over the elements of each range of dy * share, divided by `divisor`) * factor: shares as
/// `lsq_share` or `clip_share`, sums in double. Of one layout, row-major where the ranges are of blocks.
void amax_gradient(const fq::detail::RangedValues& x, const QuantizedTensor& codes, const Tensor& dy,
                   bool lsq, double divisor, float factor, Tensor& out);

/// Nothing: to know them is to wait for the GPU, and a step that is captured has no such place.
[[nodiscard]] std::optional<std::vector<std::int64_t>> rows_at_ends(const QuantizedTensor& codes);

}  // namespace fq::cuda
