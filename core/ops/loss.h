#pragma once

/// Softmax and losses.
///
///     Variable loss = ops::cross_entropy(model(x), labels);  // logits [N, C], labels i64 [N]
///     loss.backward();

#include "fakequant/core/variable.h"

namespace fq::ops {

/// exp(x - max) / sum exp(x - max) along `axis`. f32 or f64; row-major.
[[nodiscard]] Variable softmax(const Variable& x, int axis = -1);
/// x - max - log sum exp(x - max) along `axis`. f32 or f64; row-major.
[[nodiscard]] Variable log_softmax(const Variable& x, int axis = -1);

/// The mean over rows of -(1 - e) * log p[label] - e / C * sum_c log p[c], p = softmax(logits), e =
/// label_smoothing.
///
/// `logits` f32 or f64 [N, C], C >= 2 (of one class the loss is 0 whatever the logit), `labels` i64 or i32
/// [N], 0 <= label < C. Rank 0, of the logits' dtype; 0 when N is 0. The mean is taken in f64. Throws
/// ArgumentError for other shapes, a label out of range (naming its row) and a smoothing outside of [0, 1].
/// On a GPU a label out of range is a NumericError when a value is read back next.
[[nodiscard]] Variable cross_entropy(const Variable& logits, const Tensor& labels,
                                     double label_smoothing = 0.0);

/// The mean of (x - target)^2 over all elements: rank 0, of x's dtype; 0 when there are none. Both inputs get
/// gradients. Throws ArgumentError when the shapes differ.
[[nodiscard]] Variable mse_loss(const Variable& x, const Variable& target);

}  // namespace fq::ops
