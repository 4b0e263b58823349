#pragma once

/// Products of matrices, and rows looked up in one.
///
///     const auto grid = Grid::from_amax(IntFormat{}, Granularity::per_tensor(), Tensor::scalar(4));
///     Variable y = ops::linear(ops::quantize(x, grid), ops::quantize(w, grid));  // int32 sums
///     y.accumulator();                                                           // not null
///     y.tensor();                                                                // the sums, scaled
///
/// What is added up where: forward products are split over rows only, never over the terms of a sum, so that
/// evaluation has the same bits for any number of threads.

#include "fakequant/core/variable.h"

namespace fq::ops {

/// y [.., n] = sum_k x [.., k] * w [n, k] + bias [n], f32 or all f64; the output is row-major. `bias` may be
/// undefined.
///
/// Where both inputs are quantized, x per tensor and w per tensor or along axis 0, the codes are multiplied:
///
/// - integers up to 8 bits give an Accumulator of exact int32 sums with the bias as a code on their grid,
///   y[.., c] = s_x*s_w[c] * (b_q[c] + sum q_x*q_w);
/// - minifloats give floats, y = fl(fl(sum of products of codes) * fl(s_x*s_w[c])) + bias[c].
///
/// Any other quantized input is dequantized first. Gradients are those of the product of the dequantized
/// values, and of the bias straight through, in the numbers that BackwardScope (core/context.h) chooses.
/// Throws ArgumentError when shapes, dtypes or devices do not fit, and when integer sums could leave int32.
[[nodiscard]] Variable linear(const Variable& x, const Variable& w, const Variable& bias = {});

/// y [.., m, n] = a [.., m, k] * b, with b [k, n], or [.., k, n] of the same leading sizes as `a`: a product
/// of two activations, as attention has it. With `transpose_b` b is [n, k] or [.., n, k]. The output is
/// row-major; f32, or both f64.
///
/// Where both inputs are quantized with one scale each, their codes are multiplied as `linear` does it:
/// integers up to 8 bits give an Accumulator of exact int32 sums. Any other quantized input is dequantized
/// first. Throws ArgumentError when shapes, dtypes or devices do not fit, and when integer sums could leave
/// int32.
[[nodiscard]] Variable matmul(const Variable& a, const Variable& b, bool transpose_b = false);

/// y[.., :] = weight[ids[..], :], of the shape of `ids` and then D; row-major.
///
/// `ids` are i64, i32 or whole numbers in f32, of any shape, without gradient; `weight` is f32 or f64 [V, D]
/// (codes are dequantized). The gradient of a row is the sum over its uses, in order. Throws ArgumentError
/// for another shape, dtype or device and for an id that is not 0 to V - 1, naming its place. On a GPU such
/// an id is told when a value is read back next.
[[nodiscard]] Variable embedding(const Variable& ids, const Variable& weight);

}  // namespace fq::ops
