#pragma once

/// Activations, dropout and their gradients.

#include "fakequant/core/backend/dropout_blocks.h"
#include "fakequant/core/numerics/detail/activations.h"
#include "fakequant/core/tensor.h"

namespace fq::cuda {

void activate(const Tensor& x, const fq::detail::Activation& f, Tensor& y);
void activate_backward(const Tensor& dy, const Tensor& saved, const fq::detail::Activation& f, Tensor& dx);

void keep_mask(const fq::detail::DropoutBlocks& blocks, Tensor& mask);
void keep(const Tensor& x, const Tensor& mask, double scale, Tensor& y);

}  // namespace fq::cuda
