#pragma once

/// Products of matrices.
///
///     const auto spec = QuantSpec::from_amax(IntFormat{}, Granularity::per_tensor(), Tensor::scalar(4));
///     Variable y = ops::linear(ops::quantize(x, spec), ops::quantize(w, spec));  // int32 sums
///     y.accumulator();                                                           // not null
///     y.tensor();                                                                // the sums, scaled

#include "fakequant/core/variable.h"

namespace fq::ops {

/// y [.., n] = sum_k x [.., k] * w [n, k] + bias [n]. `bias` may be undefined. Row-major; f32, or all f64.
///
/// Where both inputs are quantized, x per tensor and w per tensor or along axis 0, the codes are multiplied:
/// - integers up to 8 bits give an Accumulator of exact int32 sums with the bias as a code on their grid
///   (y[.., c] = s_x*s_w[c] * (b_q[c] + sum q_x*q_w));
/// - minifloats give floats, y = fl(fl(sum of products of codes) * fl(s_x*s_w[c])) + bias[c].
/// Any other quantized input is dequantized first. Gradients are those of the product of the dequantized
/// values, and of the bias straight through. Forward results are the same bits for any number of threads.
/// Throws ArgumentError when shapes, dtypes or devices do not fit, and when integer sums could leave int32.
[[nodiscard]] Variable linear(const Variable& x, const Variable& w, const Variable& bias = {});

/// y [.., m, n] = a [.., m, k] * b, with b [k, n], or [.., k, n] of the same leading sizes as `a`.
/// Floats; quantized inputs are dequantized first. Throws ArgumentError when shapes, dtypes or devices do not
/// fit.
[[nodiscard]] Variable matmul(const Variable& a, const Variable& b);

}  // namespace fq::ops
