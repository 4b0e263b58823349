#pragma once

/// Activations and their gradients.

#include "fakequant/core/numerics/detail/activations.h"
#include "fakequant/core/tensor.h"

namespace fq::cuda {

void activate(const Tensor& x, const fq::detail::Activation& f, Tensor& y);
void activate_backward(const Tensor& dy, const Tensor& saved, const fq::detail::Activation& f, Tensor& dx);

}  // namespace fq::cuda
