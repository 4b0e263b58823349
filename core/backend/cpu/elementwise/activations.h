#pragma once

/// Activations and their gradients.

#include "fakequant/core/accumulator.h"
#include "fakequant/core/numerics/detail/activations.h"
#include "fakequant/core/tensor.h"

namespace fq::cpu {

/// y = f.value(x)
void activate(const Tensor& x, const detail::Activation& f, Tensor& y);
/// dx = dy * f.slope(saved)
void activate_backward(const Tensor& dy, const Tensor& saved, const detail::Activation& f, Tensor& dx);

/// Whether the two below take the values of sums as they are read, so that no tensor holds them.
[[nodiscard]] bool activates_sums(const Accumulator& x, const detail::Activation& f);
void activate(const Accumulator& x, const detail::Activation& f, Tensor& y);
void activate_backward(const Tensor& dy, const Accumulator& x, const detail::Activation& f, Tensor& dx);

}  // namespace fq::cpu
