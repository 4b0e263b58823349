#pragma once

/// The straight-through gradient that ModelOpt and pytorch-quantization share; not a public header.

#include "fakequant/core/variable.h"

namespace fq::detail {

/// How many elements along each axis of `x` share an element of `other`, which broadcasts against it by
/// NumPy's rule. Throws ArgumentError when it does not.
[[nodiscard]] Shape broadcast_block(const Shape& x, const Shape& other, const char* function);

/// u1, row-major: |x| <= amax (f32, broadcast against x), compared in their promoted type: an amax of rank 0
/// is first rounded to a 16-bit type of x. A NaN is never within.
[[nodiscard]] Tensor within_amax(const Tensor& x, const Tensor& amax, const char* function);

/// y on the tape: dy where the mask is set (everywhere without one), +0 elsewhere, in the type of x.
[[nodiscard]] Variable record_clipped(std::string_view op, const Variable& x, Tensor y, Tensor mask);

}  // namespace fq::detail
