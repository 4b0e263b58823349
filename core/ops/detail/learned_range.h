#pragma once

/// The gradient of a range that is trained.

#include "fakequant/core/backend/kernel_arguments.h"
#include "fakequant/core/ops/quantize.h"
#include "fakequant/core/trace.h"

namespace fq::detail {

/// The node of codes computed from x, with a gradient for `learned.amax` too; `attributes` for the trace.
[[nodiscard]] Variable attach_learned(const Variable& x, QuantizedTensor codes,
                                      const ops::LearnedRange& learned, Attributes attributes);

/// `factor` times d loss / d amax from dy = d loss / d output: f32, the shape of codes.grid.amax. `codes` are
/// those of `x`, all tensors of one layout.
[[nodiscard]] Tensor amax_gradient(const RangedValues& x, const QuantizedTensor& codes, const Tensor& dy,
                                   AmaxGradient gradient, double factor = 1);

}  // namespace fq::detail
