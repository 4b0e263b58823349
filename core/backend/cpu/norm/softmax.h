#pragma once

/// Softmax and the losses. Row-major, f32 or f64; rows in parallel.

#include "fakequant/core/backend/label_rule.h"
#include "fakequant/core/tensor.h"

namespace fq::cpu {

/// y = softmax or its logarithm along an axis.
void softmax(const Tensor& x, const AxisView& view, bool logarithm, Tensor& y);
/// dx from y = softmax(x) or its logarithm.
void softmax_backward(const Tensor& dy, const Tensor& y, const AxisView& view, bool logarithm, Tensor& dx);

/// Adds the rows of `log_p` [N, C] with `labels` i64 [N] to `totals`, f64 [2]: the loss of the rows that
/// count and their weights. Sets loss, of rank 0, to the mean so far.
void cross_entropy(const Tensor& log_p, const Tensor& labels, const LabelRule& rule, Tensor& totals,
                   Tensor& loss);
/// dlogits = dy / totals[1] * (p * the sum of targets - target), 0 of ignored rows; dy of one element. `dx`
/// may be `log_p`.
void cross_entropy_backward(const Tensor& log_p, const Tensor& labels, const LabelRule& rule,
                            const Tensor& totals, const Tensor& dy, Tensor& dx);

/// loss = the mean of (a - b)^2, rank 0, of parts over fixed blocks added in order in f64; any layout, both
/// the same.
void mse_loss(const Tensor& a, const Tensor& b, Tensor& loss);
void mse_loss_backward(const Tensor& a, const Tensor& b, const Tensor& dy, Tensor& da, Tensor& db);

}  // namespace fq::cpu
