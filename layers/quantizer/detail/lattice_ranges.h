#pragma once

/// Ranges that keep the codes of weights on a lattice.

#include "fakequant/layers/quantizer/tensor_quantizer.h"

namespace fq::detail {

/// Returns `amax`, where blocks on a lattice have the range step * bound, so that they keep their codes.
/// Other blocks keep their range, and so do weights without blocks along the last axis or without free
/// scales.
[[nodiscard]] Tensor ranges_with_lattices(const TensorQuantizer& quantizer, const Tensor& weight,
                                          const Tensor& amax);

}  // namespace fq::detail
