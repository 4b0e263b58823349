#pragma once

/// The operators that put a value on a grid of codes.

#include "fakequant/core/variable.h"

namespace fq::ops {

/// Codes of x on the grid of `spec`, whose gradient is the clipped straight-through one: dx = dy where the
/// mask is set. A value with codes on the same grid already is returned as it is. Sums not yet rounded go to
/// a per-tensor integer grid in one pass, with their pending ReLU in the mask; everything else is quantized
/// from floats. One value quantized twice to one spec (the same scale tensor) gives one node while any
/// consumer holds it. Throws ArgumentError when the channels do not fit, NumericError naming the quantizer
/// for a NaN.
[[nodiscard]] Variable quantize(const Variable& x, const QuantSpec& spec);

/// The node of codes that were computed from x before (cached weights): same gradient as `quantize`.
/// `codes` must have x's shape, and a mask where x requires a gradient.
[[nodiscard]] Variable attach_codes(const Variable& x, QuantizedTensor codes);

/// fl(code * scale) of the codes above, as floats.
[[nodiscard]] Variable fake_quantize(const Variable& x, const QuantSpec& spec);

}  // namespace fq::ops
