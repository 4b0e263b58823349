#pragma once

/// Elements gathered and mixed along one axis.

#include <vector>

#include "fakequant/core/backend/axis_mix.h"
#include "fakequant/core/tensor.h"

namespace fq::cpu {

/// Element j of y along `axis` is element from[j] of x, or `fill` where that is negative (of bits and codes
/// 0). Elements of 1, 8, 16, 32 or 64 bits; x and y have one layout.
void take(const Tensor& x, int axis, const std::vector<std::int64_t>& from, double fill, Tensor& y);
/// Element j of y along `axis` is row j of the mix of x's. f32 or f64; x and y have one layout.
void mix(const Tensor& x, int axis, const detail::AxisMix& mix, Tensor& y);

}  // namespace fq::cpu
