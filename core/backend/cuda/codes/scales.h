#pragma once

/// Scales of ranges that lie on a GPU.

#include <string>

#include "fakequant/core/numerics/detail/grid_formulas.h"
#include "fakequant/core/quantized.h"

namespace fq::cuda {

/// spec.amax and spec.scale by the rule, from the ranges in spec.amax; `text` is the message of the alarm for
/// a range that is negative, infinite or NaN.
void make_scales(QuantSpec& spec, const fq::detail::ScaleRule& rule, const std::string& text);
/// out = open_range(amax)
void open_ranges(const Tensor& amax, Tensor& out);

}  // namespace fq::cuda
