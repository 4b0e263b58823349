#pragma once

/// Softmax and the most common losses. train/losses.h has more.
///
///     Variable loss = ops::cross_entropy(model(x), labels);  // logits [N, C], labels i64 [N]
///     loss.backward();
///
/// A loss is the mean over the batch, with rank 0. Gradients therefore do not grow with the batch size.

#include <cstdint>
#include <optional>

#include "fakequant/core/variable.h"

namespace fq::ops {

/// Returns exp(x - max) / sum exp(x - max) along `axis`. A negative axis counts from the back. x is f32 or
/// f64; the output is row-major. Throws ArgumentError for an axis that does not exist.
[[nodiscard]] Variable softmax(const Variable& x, int axis = -1);
/// Returns x - max - log sum exp(x - max) along `axis`: the logarithm of `softmax`, without its underflow. x
/// is f32 or f64; the output is row-major.
[[nodiscard]] Variable log_softmax(const Variable& x, int axis = -1);

/// Returns the mean over rows of -(1 - e) * log p[label] - e / C * sum_c log p[c], where p = softmax(logits)
/// and e = label_smoothing, as PyTorch's CrossEntropyLoss.
///
/// `logits` are f32 or f64 [N, C, ..] with C >= 2 (for one class the loss is 0 for any logit: use
/// losses::bce_with_logits). `labels` are i64 or i32 [N, ..] on the same device, 0 <= label < C. Each
/// position is a row of its own. The result has rank 0 and the dtype of the logits; it is 0 if there are no
/// rows. The mean is computed in f64. Large logits are processed in chunks, so that backward needs no second
/// copy of them.
///
/// Throws ArgumentError for other shapes, for a label out of range (naming its row), and for a smoothing
/// outside of [0, 1]. On a GPU a label out of range is reported when a value is read back next.
///
/// Rows whose label is `ignored` are left out: the mean is over the others, and 0 if there are none.
///
/// With `class_weights`, f32 or f64 [C], each log p[c] is multiplied by the weight of class c. The mean is
/// divided by the sum of the weights of the labels that are not ignored, and is 0 if that sum is 0. The
/// weights are read on the host. Keep them on the CPU: reading them from a GPU waits for the GPU.
[[nodiscard]] Variable cross_entropy(const Variable& logits, const Tensor& labels,
                                     double label_smoothing = 0.0, std::optional<std::int64_t> ignored = {},
                                     const Tensor& class_weights = {});

/// Returns the mean of (x - target)^2 over all elements: rank 0, in the dtype of x; 0 if there are no
/// elements. Both inputs get gradients. Throws ArgumentError if shapes or dtypes differ: the inputs do not
/// broadcast.
[[nodiscard]] Variable mse_loss(const Variable& x, const Variable& target);

}  // namespace fq::ops
