#pragma once

/// Lattices: numbers that are multiples of one step. The weights of a network that was trained with a
/// quantizer and then saved as floats are such numbers.

#include <span>

#include "fakequant/layers/quantizer/tensor_quantizer.h"

namespace fq::detail {

/// A lattice replaces another step where it divides the squared error by this at least. Rounding weights of
/// 4-bit codes to bfloat16 leaves less than a thousandth of the error, and a step found by chance far more.
inline constexpr double lattice_gain = 16;

/// Returns the squared error of rounding the numbers to multiples k * step with integers lower <= k <= upper.
[[nodiscard]] double multiples_error(std::span<const float> x, float step, float lower, float upper);

/// Returns a positive step, or 0 if there is none. Each number is a multiple k * step, lower <= k <= upper,
/// within the errors of rounding the number and the step to bfloat16. The largest k is more than half of
/// `upper`. Among several steps, the step with the least squared error wins, then the coarsest.
[[nodiscard]] float lattice_step(std::span<const float> x, float lower, float upper);

/// Returns `amax`, where blocks on a lattice have the range step * bound, so that they keep their codes.
/// Other blocks keep their range, and so do weights without blocks along the last axis or without free
/// scales.
[[nodiscard]] Tensor ranges_with_lattices(const TensorQuantizer& quantizer, const Tensor& weight,
                                          const Tensor& amax);

}  // namespace fq::detail
