#pragma once

/// Activations and their gradients.

#include "fakequant/core/numerics/detail/activations.h"
#include "fakequant/core/tensor.h"

namespace fq::cpu {

/// y = f.value(x)
void activate(const Tensor& x, const detail::Activation& f, Tensor& y);
/// dx = dy * f.slope(saved)
void activate_backward(const Tensor& dy, const Tensor& saved, const detail::Activation& f, Tensor& dx);

}  // namespace fq::cpu
