#pragma once

/// Arithmetic, element by element: what networks and losses of one's own are written in.
///
///     Variable huber(const Variable& x, const Variable& y) {  // of |x - y| <= 1 half the square, else |x -
///     y| - 1/2
///       const Variable d = ops::abs(ops::sub(x, y)), near = ops::minimum(d, Tensor::scalar(1.0));
///       return ops::mean(ops::sub(ops::multiply(near, d), ops::scale(ops::multiply(near, near), 0.5)));
///     }
///
/// Two inputs broadcast by NumPy's rule, and their gradients are summed over the axes that were broadcast.
/// Inputs are f32 or f64, both the same; codes and sums are read as floats unless said otherwise. The output
/// has the layout of the first input that has the output's shape. All of them throw ArgumentError when shapes
/// do not broadcast or dtypes differ. Where a function has no derivative its gradient is what PyTorch gives.

#include "fakequant/core/variable.h"

namespace fq::ops {

/// a + b. Two integer code tensors of the same shape, each with one scale, give an Accumulator: their
/// addition in this order, rounded once by whoever reads it (DEPLOY: QLinearAdd).
[[nodiscard]] Variable add(const Variable& a, const Variable& b);
/// a - b; the gradient of b is -dy.
[[nodiscard]] Variable sub(const Variable& a, const Variable& b);
/// a * b; the gradient of each input is dy times the other.
[[nodiscard]] Variable multiply(const Variable& a, const Variable& b);
/// a / b, of IEEE: a division by 0 gives an infinity or NaN.
[[nodiscard]] Variable div(const Variable& a, const Variable& b);
/// a to the power b; NaN of a negative a and a broken b.
[[nodiscard]] Variable pow(const Variable& a, const Variable& b);
/// The smaller, the larger of both; NaN wins. Equal ones share the gradient by halves.
[[nodiscard]] Variable minimum(const Variable& a, const Variable& b);
[[nodiscard]] Variable maximum(const Variable& a, const Variable& b);

/// 1 where it holds, else 0, in the inputs' dtype; no gradient flows. What is compared with NaN is unequal.
[[nodiscard]] Variable less(const Variable& a, const Variable& b);
[[nodiscard]] Variable less_equal(const Variable& a, const Variable& b);
[[nodiscard]] Variable greater(const Variable& a, const Variable& b);
[[nodiscard]] Variable greater_equal(const Variable& a, const Variable& b);
[[nodiscard]] Variable equal(const Variable& a, const Variable& b);
[[nodiscard]] Variable not_equal(const Variable& a, const Variable& b);
/// a where `condition` is not 0, else b; all three broadcast. The condition takes no gradient.
[[nodiscard]] Variable where(const Variable& condition, const Variable& a, const Variable& b);

/// factor * x; the factor is a constant without gradient.
[[nodiscard]] Variable scale(const Variable& x, double factor);
/// x + by, a constant.
[[nodiscard]] Variable shift(const Variable& x, double by);
/// x to a constant power.
[[nodiscard]] Variable pow(const Variable& x, double exponent);
/// -x.
[[nodiscard]] Variable neg(const Variable& x);
/// 1 / x.
[[nodiscard]] Variable reciprocal(const Variable& x);
/// e to the power x.
[[nodiscard]] Variable exp(const Variable& x);
/// The natural logarithm; NaN below 0.
[[nodiscard]] Variable log(const Variable& x);
/// The square root; NaN below 0. Its gradient at 0 is infinite.
[[nodiscard]] Variable sqrt(const Variable& x);
/// |x|; gradient 0 at 0.
[[nodiscard]] Variable abs(const Variable& x);
/// The error function, 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x.
[[nodiscard]] Variable erf(const Variable& x);
/// Of x in radians.
[[nodiscard]] Variable sin(const Variable& x);
[[nodiscard]] Variable cos(const Variable& x);
/// The next whole number below, above, nearest (half to even), and -1, 0 or 1; their gradient is 0.
[[nodiscard]] Variable floor(const Variable& x);
[[nodiscard]] Variable ceil(const Variable& x);
[[nodiscard]] Variable round(const Variable& x);
[[nodiscard]] Variable sign(const Variable& x);

}  // namespace fq::ops
