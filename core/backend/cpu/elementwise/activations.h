#pragma once

/// Activations that read sums directly, without a tensor of the values of the sums.

#include "fakequant/core/accumulator.h"
#include "fakequant/core/numerics/detail/activations.h"
#include "fakequant/core/tensor.h"

namespace fq::cpu {

/// Returns whether the two functions below support these sums.
[[nodiscard]] bool activates_sums(const Accumulator& x, const detail::Activation& f);
/// Computes y = f.value(x).
void activate(const Accumulator& x, const detail::Activation& f, Tensor& y);
/// Computes dx = dy * f.slope(x).
void activate_backward(const Tensor& dy, const Accumulator& x, const detail::Activation& f, Tensor& dx);

}  // namespace fq::cpu
