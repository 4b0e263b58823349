#pragma once

/// Gradients of ranges that are learned.

#include <cstdint>
#include <optional>
#include <vector>

#include "fakequant/core/backend/ranged_values.h"
#include "fakequant/core/quantized.h"

namespace fq::cpu {

/// out = fl(sum over the elements of each range of dy * share, divided by `divisor`) * factor: shares as
/// `lsq_share` or `clip_share`, sums in double. `codes` are those of x. Of one layout, row-major where the
/// ranges are of blocks.
void amax_gradient(const detail::RangedValues& x, const QuantizedTensor& codes, const Tensor& dy, bool lsq,
                   double divisor, float factor, Tensor& out);

/// The rows, along the first of two axes or more, outside of which every `clip_share` is 0: those with a code
/// at an end of the range, in their order. Nothing for codes that are not integers of a byte, or have more
/// than one range.
[[nodiscard]] std::optional<std::vector<std::int64_t>> rows_at_ends(const QuantizedTensor& codes);

}  // namespace fq::cpu
