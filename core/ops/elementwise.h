#pragma once

/// Arithmetic, element by element.
///
/// Two inputs broadcast by NumPy's rule, their gradients are summed over the axes that were broadcast. f32 or
/// f64, both the same. The output has the layout of the first input that has the output's shape. Throw
/// ArgumentError when shapes do not broadcast or dtypes differ.

#include "fakequant/core/variable.h"

namespace fq::ops {

/// a + b. Two integer code tensors of the same shape, each with one scale, give an Accumulator: their
/// addition in this order, rounded once by whoever reads it (DEPLOY: QLinearAdd).
[[nodiscard]] Variable add(const Variable& a, const Variable& b);
/// a - b.
[[nodiscard]] Variable sub(const Variable& a, const Variable& b);
/// a * b.
[[nodiscard]] Variable multiply(const Variable& a, const Variable& b);
/// factor * x, the factor a constant.
[[nodiscard]] Variable scale(const Variable& x, double factor);
/// -x.
[[nodiscard]] Variable neg(const Variable& x);

}  // namespace fq::ops
