#pragma once

/// Gradient of a learned range.

#include "fakequant/core/backend/kernel_arguments.h"
#include "fakequant/core/ops/quantize.h"
#include "fakequant/core/trace.h"

namespace fq::detail {

/// Creates the node of codes computed from x, with a gradient for `learned.amax` too. `attributes` are
/// reported to the trace.
[[nodiscard]] Variable attach_learned(const Variable& x, QuantizedTensor codes,
                                      const ops::LearnedRange& learned, Attributes attributes);

/// Returns `factor` times d loss / d amax for dy = d loss / d output: f32, in the shape of codes.grid.amax.
/// `codes` are the codes of `x`. All tensors have the same layout.
[[nodiscard]] Tensor amax_gradient(const RangedValues& x, const QuantizedTensor& codes, const Tensor& dy,
                                   AmaxGradient gradient, double factor = 1);

}  // namespace fq::detail
