#pragma once

/// Lattices: numbers that are multiples of one step. The weights of a network that was trained with a
/// quantizer and then saved as floats are such numbers.

#include <span>

namespace fq::detail {

/// A lattice replaces another step where it divides the squared error by this at least. Rounding weights of
/// 4-bit codes to bfloat16 leaves less than a thousandth of the error, and a step found by chance far more.
inline constexpr double lattice_gain = 16;

/// Returns the squared error of rounding the numbers to multiples k * step with integers lower <= k <= upper.
[[nodiscard]] double multiples_error(std::span<const float> x, float step, float lower, float upper);

/// Returns a positive step of which each number is such a multiple, within the errors of rounding the number
/// and the step to bfloat16; 0 where there is none. The largest multiple is more than half of `upper`. Of
/// several steps it is the one with the least squared error, and of equals the coarsest.
[[nodiscard]] float lattice_step(std::span<const float> x, float lower, float upper);

}  // namespace fq::detail
