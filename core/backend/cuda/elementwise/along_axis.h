#pragma once

/// Elements gathered and mixed along one axis, as fq::cpu has them.

#include <vector>

#include "fakequant/core/backend/axis_mix.h"
#include "fakequant/core/tensor.h"

namespace fq::cuda {

void take(const Tensor& x, int axis, const std::vector<std::int64_t>& from, double fill, Tensor& y);
void mix(const Tensor& x, int axis, const fq::detail::AxisMix& mix, Tensor& y);

}  // namespace fq::cuda
