#pragma once

/// Conversions of whole tensors between dtypes.

#include "fakequant/core/tensor.h"

namespace fq::cpu {

/// As detail::convert, which converts what is not narrowed from f32 to 16 bits.
void convert(const Tensor& in, Tensor& out);

}  // namespace fq::cpu
