#pragma once

/// Softmax and the losses that most training needs; train/losses.h has more.
///
///     Variable loss = ops::cross_entropy(model(x), labels);  // logits [N, C], labels i64 [N]
///     loss.backward();
///
/// A loss is a mean over the batch, of rank 0, so that gradients do not grow with the size of a batch.

#include <cstdint>
#include <optional>

#include "fakequant/core/variable.h"

namespace fq::ops {

/// exp(x - max) / sum exp(x - max) along `axis`, which counts from the back where it is negative. f32 or f64;
/// the output is row-major. Throws ArgumentError for an axis that is not there.
[[nodiscard]] Variable softmax(const Variable& x, int axis = -1);
/// x - max - log sum exp(x - max) along `axis`: the logarithm of `softmax`, without its underflow. f32 or
/// f64; row-major.
[[nodiscard]] Variable log_softmax(const Variable& x, int axis = -1);

/// The mean over rows of -(1 - e) * log p[label] - e / C * sum_c log p[c], where p = softmax(logits) and e =
/// label_smoothing: torch's CrossEntropyLoss.
///
/// `logits` are f32 or f64 [N, C, ..] with C >= 2 (of one class the loss is 0 whatever the logit: use
/// losses::bce_with_logits), `labels` i64 or i32 [N, ..] on their device, 0 <= label < C. Each position is a
/// row of its own. The result has rank 0 and the logits' dtype; it is 0 when there are no rows. The mean is
/// taken in f64. Large logits are read in chunks, which keeps no second copy of them for backward.
///
/// Throws ArgumentError for other shapes, a label out of range (naming its row) and a smoothing outside of
/// [0, 1]. On a GPU a label out of range is told when a value is read back next.
///
/// Rows whose label is `ignored` count for nothing: the mean is over the others, 0 where there are none.
///
/// With `class_weights`, f32 or f64 [C], each log p[c] is multiplied by that of its class, and the mean is
/// divided by the weights of the labels that count, 0 where those are 0. They are read on the host: best they
/// are there, as reading those of a GPU waits.
[[nodiscard]] Variable cross_entropy(const Variable& logits, const Tensor& labels,
                                     double label_smoothing = 0.0, std::optional<std::int64_t> ignored = {},
                                     const Tensor& class_weights = {});

/// The mean of (x - target)^2 over all elements: rank 0, in x's dtype; 0 when there are none. Both inputs get
/// gradients. Throws ArgumentError when shapes or dtypes differ: nothing broadcasts.
[[nodiscard]] Variable mse_loss(const Variable& x, const Variable& target);

}  // namespace fq::ops
