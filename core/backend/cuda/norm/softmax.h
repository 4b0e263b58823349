#pragma once

/// Softmax and the losses. As fq::cpu has them; sums are made in f64, a loss stays on the device.

#include "fakequant/core/backend/label_rule.h"
#include "fakequant/core/tensor.h"

namespace fq::cuda {

void softmax(const Tensor& x, const AxisView& view, bool logarithm, Tensor& y);
void softmax_backward(const Tensor& dy, const Tensor& y, const AxisView& view, bool logarithm, Tensor& dx);

void cross_entropy(const Tensor& log_p, const Tensor& labels, const LabelRule& rule, Tensor& totals,
                   Tensor& loss);
void cross_entropy_backward(const Tensor& log_p, const Tensor& labels, const LabelRule& rule,
                            const Tensor& totals, const Tensor& dy, Tensor& dx);
void mse_loss(const Tensor& a, const Tensor& b, Tensor& loss);
void mse_loss_backward(const Tensor& a, const Tensor& b, const Tensor& dy, Tensor& da, Tensor& db);

}  // namespace fq::cuda
