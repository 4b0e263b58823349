#pragma once

/// Elementwise arithmetic, for networks and custom losses.
///
///     // Half the square where |x - y| <= 1, else |x - y| - 1/2.
///     Variable huber(const Variable& x, const Variable& y) {
///       const Variable d = ops::abs(ops::sub(x, y)), near = ops::minimum(d, Tensor::scalar(1.0));
///       return ops::mean(ops::sub(ops::multiply(near, d), ops::scale(ops::multiply(near, near), 0.5)));
///     }
///
/// Two inputs broadcast by NumPy's rule, and their gradients are summed over the broadcast axes. Inputs are
/// both f32 or both f64. Codes and sums are converted to floats first unless stated otherwise. The output has
/// the layout of the first input that has the output's shape. Each function throws ArgumentError if shapes do
/// not broadcast, or if dtypes or devices differ. Where a function has no derivative, the gradient is the one
/// PyTorch uses.
/// PyTorch gives.

#include <vector>

#include "fakequant/core/variable.h"

namespace fq::ops {

/// Returns a + b. Both inputs get dy. Two integer code tensors of the same shape, each with one scale, give
/// an Accumulator: the codes are added in this order and rounded once by the next operator, as in ONNX
/// Runtime's QLinearAdd.
[[nodiscard]] Variable add(const Variable& a, const Variable& b);
/// Returns a - b. The gradient of b is -dy.
[[nodiscard]] Variable sub(const Variable& a, const Variable& b);
/// Returns a * b. The gradient of each input is dy times the other input.
[[nodiscard]] Variable multiply(const Variable& a, const Variable& b);
/// Returns a / b by IEEE 754: division by 0 gives infinity or NaN.
[[nodiscard]] Variable div(const Variable& a, const Variable& b);
/// Returns a to the power b. NaN if a is negative and b is not a whole number.
[[nodiscard]] Variable pow(const Variable& a, const Variable& b);
/// Returns the smaller element. NaN if either is NaN. Equal elements get half of the gradient each.
[[nodiscard]] Variable minimum(const Variable& a, const Variable& b);
/// Returns the larger element. NaN and equal elements are handled as in `minimum`.
[[nodiscard]] Variable maximum(const Variable& a, const Variable& b);

/// Returns 1 where the comparison holds, else 0, in the dtype of the inputs. There is no gradient. NaN is
/// unequal to everything, and neither less nor greater.
[[nodiscard]] Variable less(const Variable& a, const Variable& b);
[[nodiscard]] Variable less_equal(const Variable& a, const Variable& b);
[[nodiscard]] Variable greater(const Variable& a, const Variable& b);
[[nodiscard]] Variable greater_equal(const Variable& a, const Variable& b);
[[nodiscard]] Variable equal(const Variable& a, const Variable& b);
[[nodiscard]] Variable not_equal(const Variable& a, const Variable& b);
/// Returns a where `condition` is not 0, else b. All three broadcast. The condition gets no gradient, and an
/// element that was not chosen gets 0.
[[nodiscard]] Variable where(const Variable& condition, const Variable& a, const Variable& b);

/// Returns factor * x. The factor is a constant without gradient.
[[nodiscard]] Variable scale(const Variable& x, double factor);
/// Returns x + by. `by` is a constant without gradient.
[[nodiscard]] Variable shift(const Variable& x, double by);
/// Returns x to a constant power, which has no gradient.
[[nodiscard]] Variable pow(const Variable& x, double exponent);
/// Returns -x.
[[nodiscard]] Variable neg(const Variable& x);
/// Returns 1 / x.
[[nodiscard]] Variable reciprocal(const Variable& x);
/// Returns e to the power x.
[[nodiscard]] Variable exp(const Variable& x);
/// Returns the natural logarithm: NaN below 0, minus infinity at 0.
[[nodiscard]] Variable log(const Variable& x);
/// Returns the square root, or NaN below 0. The gradient at 0 is infinite.
[[nodiscard]] Variable sqrt(const Variable& x);
/// Returns |x|. The gradient at 0 is 0.
[[nodiscard]] Variable abs(const Variable& x);
/// Returns the error function: 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x.
[[nodiscard]] Variable erf(const Variable& x);
/// Returns the sine of x, in radians.
[[nodiscard]] Variable sin(const Variable& x);
/// Returns the cosine of x, in radians.
[[nodiscard]] Variable cos(const Variable& x);
/// Rounds down, up, or to the nearest whole number with halves to even. The gradient is 0. Use ops::quantize
/// for rounding with a straight-through gradient.
[[nodiscard]] Variable floor(const Variable& x);
[[nodiscard]] Variable ceil(const Variable& x);
[[nodiscard]] Variable round(const Variable& x);
/// Returns the sign of x: -1, 0 or 1. The gradient is 0.
[[nodiscard]] Variable sign(const Variable& x);
/// Rounds x toward zero. The gradient is 0.
[[nodiscard]] Variable trunc(const Variable& x);
/// Rounds x to a 16-bit float type, halves to even, and keeps the dtype of x. The gradient passes unchanged.
/// Numbers beyond the largest become infinities. Throws ArgumentError for a type other than f16 and bf16.
[[nodiscard]] Variable round_to(const Variable& x, DType type);

/// Sums, means and extremes along axes.
///
///     const Variable each = ops::mean(ops::pow(ops::sub(y, target), 2.0), {1});  // [N, C] to [N]
///     const Variable loss = ops::sum(ops::multiply(each, weights));              // rank 0
///
/// Inputs are f32 or f64; codes and sums are converted to floats. Elements are combined in f64, in an order
/// that depends only on the shape. `axes` lists the reduced axes: negative ones count from the back, and an
/// empty list means all. With `keep_axes` they stay with size 1, and the result broadcasts against x. Results
/// are row-major and have the dtype of x. Each function throws ArgumentError for an axis that does not exist
/// or is listed twice.

/// Returns the sum of the elements, or 0 for no elements. Each element gets dy.
[[nodiscard]] Variable sum(const Variable& x, const std::vector<int>& axes = {}, bool keep_axes = false);
/// Returns the sum divided by the number of elements, or 0 for no elements.
[[nodiscard]] Variable mean(const Variable& x, const std::vector<int>& axes = {}, bool keep_axes = false);
/// Returns the largest element, or NaN if any is NaN. Equal elements share the gradient evenly. Throws
/// ArgumentError if there is no element.
[[nodiscard]] Variable max(const Variable& x, const std::vector<int>& axes = {}, bool keep_axes = false);
/// Returns the smallest element, with the rules of `max`.
[[nodiscard]] Variable min(const Variable& x, const std::vector<int>& axes = {}, bool keep_axes = false);

}  // namespace fq::ops
