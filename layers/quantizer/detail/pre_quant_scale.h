#pragma once

/// What happens to a value before it is quantized.

#include "fakequant/core/variable.h"

namespace fq::detail {

/// x * scale in the type of x, one rounding (f32 for a scale of another type and more than 0 axes), gradient
/// dy * scale in the type of x. `scale` broadcasts against x. Throws ArgumentError when it does not.
[[nodiscard]] Variable pre_quant_scaled(const Variable& x, const Tensor& scale);
/// x itself unless it is a 16-bit tensor: that as f32, with the gradient in its own type.
[[nodiscard]] Variable as_f32(const Variable& x);

}  // namespace fq::detail
