#pragma once

/// Activations that read sums directly, without a tensor of the values of the sums.

#include "fakequant/core/accumulator.h"
#include "fakequant/core/numerics/detail/activations.h"
#include "fakequant/core/tensor.h"

namespace fq::cpu {

/// Whether the two functions below take the sums.
[[nodiscard]] bool activates_sums(const Accumulator& x, const detail::Activation& f);
/// y = f.value(x)
void activate(const Accumulator& x, const detail::Activation& f, Tensor& y);
/// dx = dy * f.slope(x)
void activate_backward(const Tensor& dy, const Accumulator& x, const detail::Activation& f, Tensor& dx);

}  // namespace fq::cpu
