#pragma once

/// The scales that ranges give.

#include <string>

#include "fakequant/core/numerics/detail/grid_formulas.h"
#include "fakequant/core/quantized.h"

namespace fq::cpu {

/// spec.amax and spec.scale by the rule, from the ranges in spec.amax. Throws ArgumentError for one that is
/// negative, infinite or NaN, and tells it.
void make_scales(QuantSpec& spec, const detail::ScaleRule& rule, const std::string& text);
/// out = open_range(amax)
void open_ranges(const Tensor& amax, Tensor& out);

}  // namespace fq::cpu
