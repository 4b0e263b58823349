#pragma once

/// Matrix products and embedding lookup.
///
///     const auto grid = Grid::from_amax(IntFormat{}, Granularity::per_tensor(), Tensor::scalar(4));
///     Variable y = ops::linear(ops::quantize(x, grid), ops::quantize(w, grid));  // int32 sums
///     y.accumulator();                                                           // not null
///     y.tensor();                                                                // the sums, scaled
///
/// Forward products are split into tasks over rows only, never over the terms of a sum. Evaluation therefore
/// has the same bits for any number of threads.

#include "fakequant/core/variable.h"

namespace fq::ops {

/// Returns y [.., n] = sum_k x [.., k] * w [n, k] + bias [n], all f32 or all f64. The output is row-major.
/// `bias` may be undefined.
///
/// If both inputs are quantized, x per tensor and w per tensor or along axis 0, the codes are multiplied:
///
/// - integers up to 8 bits give an Accumulator of exact int32 sums, with the bias as a code on their grid:
///   y[.., c] = s_x*s_w[c] * (b_q[c] + sum q_x*q_w);
/// - minifloats give floats, y = fl(fl(sum of products of codes) * fl(s_x*s_w[c])) + bias[c].
///
/// Any other quantized input is dequantized first. The gradients are computed from the dequantized values, in
/// the number format of BackwardScope (core/context.h). The bias gradient ignores the rounding of the bias.
/// Throws ArgumentError if shapes, dtypes or devices do not fit, or if integer sums could exceed int32.
[[nodiscard]] Variable linear(const Variable& x, const Variable& w, const Variable& bias = {});

/// Returns y [.., m, n] = a [.., m, k] * b, a product of two activations, as in attention. b is [k, n], or
/// [.., k, n] with the same leading sizes as `a`; with `transpose_b` it is [n, k] or [.., n, k]. The output
/// is row-major. Both are f32 or both f64.
///
/// If both inputs are quantized with one scale each, their codes are multiplied as in `linear`: integers up
/// to 8 bits give an Accumulator of exact int32 sums. Any other quantized input is dequantized first. Throws
/// ArgumentError if shapes, dtypes or devices do not fit, or if integer sums could exceed int32.
[[nodiscard]] Variable matmul(const Variable& a, const Variable& b, bool transpose_b = false);

/// Returns y[.., :] = weight[ids[..], :]. Its shape is the shape of `ids` followed by D, row-major.
///
/// `ids` are i64, i32 or whole numbers in f32, of any shape, without gradient. `weight` is f32 or f64 [V, D]
/// (codes are dequantized). The gradient of a row is the sum over its uses, in order. Throws ArgumentError
/// for another shape, dtype or device, and for an id outside of 0 to V - 1, naming its index. On a GPU an
/// invalid id is reported when a value is read back next.
[[nodiscard]] Variable embedding(const Variable& ids, const Variable& weight);

}  // namespace fq::ops
