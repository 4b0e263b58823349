#pragma once

/// Softmax and the losses; not a public header. Row-major, f32 or f64; rows in parallel.

#include "fakequant/core/tensor.h"

namespace fq::cpu {

/// y = softmax or its logarithm along an axis.
void softmax(const Tensor& x, const AxisView& view, bool logarithm, Tensor& y);
/// dx from y = softmax(x) or its logarithm.
void softmax_backward(const Tensor& dy, const Tensor& y, const AxisView& view, bool logarithm, Tensor& dx);

/// The sum over rows of the loss of ops::cross_entropy; `log_p` [N, C], `labels` i64 [N].
[[nodiscard]] double cross_entropy_sum(const Tensor& log_p, const Tensor& labels, double smoothing);
/// dlogits = factor * (p - target).
void cross_entropy_backward(const Tensor& log_p, const Tensor& labels, double smoothing, double factor,
                            Tensor& dx);

/// The sum of (a - b)^2, of parts over fixed blocks added in order in f64; any layout, both the same.
[[nodiscard]] double squared_distance(const Tensor& a, const Tensor& b);

}  // namespace fq::cpu
