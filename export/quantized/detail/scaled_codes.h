#pragma once

/// What codes of a file stand for.

#include "fakequant/core/blocks/granularity.h"
#include "fakequant/core/tensor.h"

namespace fq::detail {

/// fl(code * scale) of codes as f32 in row-major order. `scale` is f32: one number, or one for each block of
/// `by`, row-major. Throws ArgumentError for another count, and where `by` does not fit the shape.
[[nodiscard]] Tensor scaled_codes(const Tensor& codes, const Tensor& scale, const Granularity& by);

}  // namespace fq::detail
