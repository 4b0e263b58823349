#pragma once

/// Losses of tasks beside classification by cross entropy (core/ops/loss.h), for loops of one's own and for
/// ObjectiveOptions::loss. That of sequences of labels is in train/ctc.h.
///
///     TrainerOptions options;
///     options.objective.loss = [](const Variable& y, const Tensor& labels) { return losses::huber(y,
///     labels); };
///
/// Outputs are f32 or f64, codes and sums are read as floats; a target has the outputs' shape unless said
/// otherwise, any float type, and takes no gradient. Each is a mean over elements (or over what is said), of
/// rank 0. Throw ArgumentError for other shapes. Formulas are those of PyTorch 2.15's functions of the same
/// purpose.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fakequant/core/variable.h"

namespace fq {

/// What is made smaller: of a model's outputs for a batch and the batch's labels, rank 0. A mean over the
/// samples, so that those of batches add up.
using Loss = std::function<Variable(const Variable& outputs, const Tensor& labels)>;

namespace losses {

/// |y - t|.
[[nodiscard]] Variable l1(const Variable& outputs, const Tensor& target);
/// (y - t)^2.
[[nodiscard]] Variable mse(const Variable& outputs, const Tensor& target);
/// (y - t)^2 / 2 where |y - t| <= delta, else delta * (|y - t| - delta / 2) (Huber 1964). `delta` above 0.
[[nodiscard]] Variable huber(const Variable& outputs, const Tensor& target, double delta = 1.0);

/// weight * ((1 - t) * y + (1 + (positive - 1) * t) * log(1 + exp(-y))): the cross entropy of sigmoid(y), for
/// one output of two classes and for several labels. `weight` and `positive`, the weight of what is true,
/// broadcast to the outputs, or are undefined for 1.
[[nodiscard]] Variable bce_with_logits(const Variable& outputs, const Tensor& target,
                                       const Tensor& weight = {}, const Tensor& positive = {});
/// Binary cross entropy of sigmoid(y) times alpha_t * (1 - p_t)^gamma, p_t the probability of what is true
/// and alpha_t alpha where t is 1, else 1 - alpha; a negative alpha leaves it out (Lin et al.,
/// arXiv:1708.02002; torchvision's sigmoid_focal_loss).
[[nodiscard]] Variable focal(const Variable& outputs, const Tensor& target, double alpha = 0.25,
                             double gamma = 2.0);
/// 1 - (2 * sum p t + smooth) / (sum p + sum t + smooth), p = sigmoid(y), sums over all axes but the first
/// two; the mean over samples and channels (Milletari et al., arXiv:1606.04797). Outputs [N, C, ..].
[[nodiscard]] Variable dice(const Variable& outputs, const Tensor& target, double smooth = 1.0);

/// What cross_entropy is told.
struct CrossEntropyOptions {
  Tensor class_weights = {};         ///< [C], best on the host; undefined for 1
  std::int64_t ignore_index = -100;  ///< a label that counts for nothing
  double label_smoothing = 0.0;      ///< 0 to 1
};
/// The mean over labels that are not ignored, weighted by the weight of their class, of -log
/// softmax(y)[label]; outputs [N, C, ..] of two classes or more, labels i64 [N, ..], 0 to C - 1, on any
/// device. 0 where all are ignored.
[[nodiscard]] Variable cross_entropy(const Variable& outputs, const Tensor& labels,
                                     const CrossEntropyOptions& options);
/// Of shares of classes, [N, C, ..] as the outputs: the mean over [N, ..] of -sum_c w t log softmax(y), with
/// the weights of classes, and of t' = (1 - label_smoothing) t + label_smoothing / C. No label is ignored.
[[nodiscard]] Variable soft_cross_entropy(const Variable& outputs, const Tensor& target,
                                          const CrossEntropyOptions& options = {});

}  // namespace losses

/// A loss by name, for options and files.
struct LossOptions {
  /// "cross_entropy", "bce" (bce_with_logits), "focal", "dice", "ctc", "mse", "l1" or "huber".
  std::string kind = "cross_entropy";
  double label_smoothing = 0;                     ///< of cross_entropy
  std::vector<double> class_weights = {};         ///< of cross_entropy, one a class; empty for 1
  std::optional<std::int64_t> ignore_index = {};  ///< of cross_entropy; of ctc what fills rows of labels
  double positive_weight = 1;                     ///< of bce
  double alpha = 0.25, gamma = 2;                 ///< of focal
  double delta = 1;                               ///< of huber
  double smooth = 1;                              ///< of dice
  std::int64_t blank = 0;                         ///< of ctc
  bool zero_infinity = false;                     ///< of ctc
};

/// The kinds that there are.
[[nodiscard]] const std::vector<std::string>& loss_kinds();
/// Whether its labels are classes: that of the largest output is the answer.
[[nodiscard]] bool takes_classes(const LossOptions& options);

/// The loss of that kind, which takes labels as data sets have them: integers become floats, [N] of numbers
/// becomes [N, 1], for bce, focal and dice classes [N, ..] become [N, C, ..], 1 at the class and 0 elsewhere,
/// and for cross_entropy floats of the outputs' shape are shares of classes. Throws ArgumentError for an
/// unknown kind, naming the nearest, and for numbers out of range; the loss itself for labels of ctc that do
/// not fit into the outputs' places, unless `zero_infinity`.
[[nodiscard]] Loss make_loss(const LossOptions& options);

}  // namespace fq
