#pragma once

/// Arithmetic, element by element: what networks and losses of one's own are written in.
///
///     // Half the square where |x - y| <= 1, else |x - y| - 1/2.
///     Variable huber(const Variable& x, const Variable& y) {
///       const Variable d = ops::abs(ops::sub(x, y)), near = ops::minimum(d, Tensor::scalar(1.0));
///       return ops::mean(ops::sub(ops::multiply(near, d), ops::scale(ops::multiply(near, near), 0.5)));
///     }
///
/// Two inputs broadcast by NumPy's rule, and their gradients are summed over the axes that were broadcast.
/// Inputs are f32 or f64, both the same; codes and sums are read as floats unless said otherwise. The output
/// has the layout of the first input that has the output's shape. All of them throw ArgumentError when shapes
/// do not broadcast or dtypes or devices differ. Where a function has no derivative its gradient is what
/// PyTorch gives.

#include <vector>

#include "fakequant/core/variable.h"

namespace fq::ops {

/// a + b, to which both gradients pass. Two integer code tensors of the same shape, each with one scale, give
/// an Accumulator: their addition in this order, rounded once by whoever reads it, as ONNX Runtime's
/// QLinearAdd does.
[[nodiscard]] Variable add(const Variable& a, const Variable& b);
/// a - b; the gradient of b is -dy.
[[nodiscard]] Variable sub(const Variable& a, const Variable& b);
/// a * b; the gradient of each input is dy times the other.
[[nodiscard]] Variable multiply(const Variable& a, const Variable& b);
/// a / b by IEEE 754: a division by 0 gives an infinity or NaN.
[[nodiscard]] Variable div(const Variable& a, const Variable& b);
/// a to the power b; NaN for a negative a and a b that is no whole number.
[[nodiscard]] Variable pow(const Variable& a, const Variable& b);
/// The smaller of both; NaN on either side wins. Where both are equal each gets half of the gradient.
[[nodiscard]] Variable minimum(const Variable& a, const Variable& b);
/// The larger of both; NaN and equal ones are as for `minimum`.
[[nodiscard]] Variable maximum(const Variable& a, const Variable& b);

/// 1 where the comparison holds, else 0, in the inputs' dtype; no gradient flows. NaN is unequal to
/// everything, and neither less nor greater.
[[nodiscard]] Variable less(const Variable& a, const Variable& b);
[[nodiscard]] Variable less_equal(const Variable& a, const Variable& b);
[[nodiscard]] Variable greater(const Variable& a, const Variable& b);
[[nodiscard]] Variable greater_equal(const Variable& a, const Variable& b);
[[nodiscard]] Variable equal(const Variable& a, const Variable& b);
[[nodiscard]] Variable not_equal(const Variable& a, const Variable& b);
/// a where `condition` is not 0, else b; all three broadcast. The condition takes no gradient, and neither
/// does the side that was not chosen.
[[nodiscard]] Variable where(const Variable& condition, const Variable& a, const Variable& b);

/// factor * x; the factor is a constant without gradient.
[[nodiscard]] Variable scale(const Variable& x, double factor);
/// x + by; `by` is a constant without gradient.
[[nodiscard]] Variable shift(const Variable& x, double by);
/// x to a power that is a constant without gradient.
[[nodiscard]] Variable pow(const Variable& x, double exponent);
/// -x.
[[nodiscard]] Variable neg(const Variable& x);
/// 1 / x.
[[nodiscard]] Variable reciprocal(const Variable& x);
/// e to the power x.
[[nodiscard]] Variable exp(const Variable& x);
/// The natural logarithm; NaN below 0, minus infinity at 0.
[[nodiscard]] Variable log(const Variable& x);
/// The square root; NaN below 0. Its gradient at 0 is infinite.
[[nodiscard]] Variable sqrt(const Variable& x);
/// |x|; gradient 0 at 0.
[[nodiscard]] Variable abs(const Variable& x);
/// The error function, 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x.
[[nodiscard]] Variable erf(const Variable& x);
/// The sine of x, in radians.
[[nodiscard]] Variable sin(const Variable& x);
/// The cosine of x, in radians.
[[nodiscard]] Variable cos(const Variable& x);
/// The next whole number below, the next above, and the nearest, half to even; their gradient is 0. Rounding
/// that passes a gradient is ops::quantize.
[[nodiscard]] Variable floor(const Variable& x);
[[nodiscard]] Variable ceil(const Variable& x);
[[nodiscard]] Variable round(const Variable& x);
/// -1, 0 or 1, the sign of x; gradient 0.
[[nodiscard]] Variable sign(const Variable& x);
/// x without its fraction, rounded toward zero; gradient 0.
[[nodiscard]] Variable trunc(const Variable& x);
/// The nearest number of a 16-bit float type, half to even, in x's own dtype; the gradient passes. Numbers
/// beyond the largest become infinities. Throws ArgumentError for a type other than f16 and bf16.
[[nodiscard]] Variable round_to(const Variable& x, DType type);

/// Sums, means and extremes along axes.
///
///     const Variable each = ops::mean(ops::pow(ops::sub(y, target), 2.0), {1});  // [N, C] to [N]
///     const Variable loss = ops::sum(ops::multiply(each, weights));              // rank 0
///
/// Inputs are f32 or f64, read as floats; elements are joined in f64, in an order that the shape alone
/// decides. `axes`, negative ones from the back, are those that go, and none means all; with `keep_axes` they
/// stay, of size 1, so that the result broadcasts against x. Results are row-major and have x's dtype. All
/// throw ArgumentError for an axis that is not there or is named twice.

/// The sum of the elements; 0 where there are none. Each of them gets dy.
[[nodiscard]] Variable sum(const Variable& x, const std::vector<int>& axes = {}, bool keep_axes = false);
/// The sum over the number of elements that it is of; 0 where there are none.
[[nodiscard]] Variable mean(const Variable& x, const std::vector<int>& axes = {}, bool keep_axes = false);
/// The largest element; NaN wins. Equal ones share the gradient evenly. Throws ArgumentError where there is
/// no element to choose.
[[nodiscard]] Variable max(const Variable& x, const std::vector<int>& axes = {}, bool keep_axes = false);
/// The smallest element; all else is as for `max`.
[[nodiscard]] Variable min(const Variable& x, const std::vector<int>& axes = {}, bool keep_axes = false);

}  // namespace fq::ops
