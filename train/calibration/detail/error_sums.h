#pragma once

/// Squared errors of quantizing a tensor.

#include <span>

#include "fakequant/core/tensor.h"

namespace fq::detail {

struct ErrorSums {
  double error = 0;   ///< of (y - x)^2
  double signal = 0;  ///< of x^2
};

/// Of two f32 tensors of one shape and layout, in double; each element as often as `counts` says, once
/// without it. In blocks that are added in order, so that the number of threads does not matter.
[[nodiscard]] ErrorSums error_sums(const Tensor& x, const Tensor& y, std::span<const double> counts = {});

}  // namespace fq::detail
