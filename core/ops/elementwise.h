#pragma once

/// Arithmetic, element by element.
///
/// Two inputs broadcast by NumPy's rule, and their gradients are summed over the axes that were broadcast.
/// Inputs are f32 or f64, both the same; codes and sums are read as floats unless said otherwise. The output
/// has the layout of the first input that has the output's shape. All of them throw ArgumentError when shapes
/// do not broadcast or dtypes differ.

#include "fakequant/core/variable.h"

namespace fq::ops {

/// a + b. Two integer code tensors of the same shape, each with one scale, give an Accumulator: their
/// addition in this order, rounded once by whoever reads it (DEPLOY: QLinearAdd).
[[nodiscard]] Variable add(const Variable& a, const Variable& b);
/// a - b; the gradient of b is -dy.
[[nodiscard]] Variable sub(const Variable& a, const Variable& b);
/// a * b; the gradient of each input is dy times the other.
[[nodiscard]] Variable multiply(const Variable& a, const Variable& b);
/// factor * x; the factor is a constant without gradient.
[[nodiscard]] Variable scale(const Variable& x, double factor);
/// -x.
[[nodiscard]] Variable neg(const Variable& x);

}  // namespace fq::ops
