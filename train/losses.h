#pragma once

/// Losses other than cross entropy (core/ops/loss.h), for training loops and ObjectiveOptions::loss;
/// distillation (Hinton et al. 2015); connectionist temporal classification of label sequences (Graves et al.
/// 2006).
///
///     TrainerOptions options;
///     options.objective.loss = [](const Variable& y, const Tensor& t) { return losses::huber(y, t); };
///     options.objective.distillation = {.teacher = float_network, .temperature = 4, .weight = 0.9};
///     const Tensor read = ctc_decode(predict(model, test));  // i64 [N, L], -1 after the last label
///
/// Outputs are f32 or f64; codes and sums are read as floats. A target has the shape of the outputs unless
/// noted, any float type, and takes no gradient. Each loss is a mean over elements (or as noted) of rank 0.
/// Losses throw ArgumentError for other shapes. Formulas are those of PyTorch's functions of the same
/// purpose.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fakequant/core/variable.h"

namespace fq {

class Module;

/// Loss of the outputs of a batch for its labels: a scalar, the mean over the samples of the batch.
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

/// Options of `cross_entropy`.
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

/// Options of distillation.
struct DistillationOptions {
  /// The network whose outputs are followed, null for none: of the same samples and the same outputs as the
  /// one that is trained, on any device. It runs in evaluation mode, and is not changed but moved to the
  /// device of the run.
  std::shared_ptr<Module> teacher = nullptr;
  std::string kind = "kl";  ///< of `distillation_kinds`
  double temperature = 2;   ///< of "kl", above 0: larger ones tell small probabilities apart
  /// The share of the teacher in the loss, 0 to 1: the labels have the rest, none by default.
  double weight = 1;
};

/// "kl" for outputs of classes, [N, C, ..] along C; "mse" for numbers, and for several labels a sample.
[[nodiscard]] const std::vector<std::string>& distillation_kinds();

/// How far outputs are from those of the teacher, rank 0:
///
/// - "kl": the mean over all but the axis of classes of T^2 * sum_c p_c * (log p_c - log q_c), p and q the
///   softmax of the teacher's outputs and these, both over T: gradients do not shrink where T grows;
/// - "mse": the mean of (y - t)^2 over all elements.
///
/// The teacher takes no gradient. Throws ArgumentError for shapes that differ, an unknown kind, naming the
/// nearest, and numbers out of range.
[[nodiscard]] Variable distillation_loss(const Variable& outputs, const Tensor& teacher,
                                         const DistillationOptions& options);

/// Throws ArgumentError for options that `distillation_loss` throws for, and a weight out of range.
void check(const DistillationOptions& options);

namespace losses {

/// Options of `ctc`.
struct CtcOptions {
  std::int64_t blank = 0;  ///< the class that says nothing
  /// Fills the end of a row of labels, as negative ones and the blank do anyway; 255 of u8 labels.
  std::optional<std::int64_t> padding = {};
  Tensor lengths = {};  ///< i64 [N], places of the outputs that count, 0 to L; undefined for all
  /// Samples whose labels do not fit into their places count as 0, without a gradient, in place of infinity.
  bool zero_infinity = false;
};

/// The mean over samples of -log P(labels) / max(1, labels), P the probability of all ways to place the
/// labels in order, with blanks between equal neighbours; outputs [N, C, L] before their softmax, over C at
/// each of L places; labels of integers [N, S], or [N] of one each, a row filled at its end. The numbers of
/// PyTorch's ctc_loss of log_softmax, reduction "mean"; sums are in f64. Throws ArgumentError for other
/// shapes, labels that are no class, and labels behind the end of a row.
[[nodiscard]] Variable ctc(const Variable& outputs, const Tensor& labels, const CtcOptions& options = {});

}  // namespace losses

/// Labels by rows, without what fills them. Throws ArgumentError as `losses::ctc`; `classes` bounds labels.
[[nodiscard]] std::vector<std::vector<std::int64_t>> label_rows(const Tensor& labels, std::int64_t classes,
                                                                std::int64_t blank = 0,
                                                                std::optional<std::int64_t> padding = {});

/// How many places labels take at least: their number, and one more between equal neighbours.
[[nodiscard]] std::int64_t ctc_places(const std::vector<std::int64_t>& labels);

/// Greedy decoding: the largest class of each place of outputs [N, C, L], repeats and then blanks taken out:
/// i64 [N, L] on the host, filled by -1.
[[nodiscard]] Tensor ctc_decode(const Tensor& outputs, std::int64_t blank = 0);

/// The least number of labels to put in, take out or replace that makes one sequence the other (Levenshtein).
[[nodiscard]] std::int64_t edit_distance(const std::vector<std::int64_t>& a,
                                         const std::vector<std::int64_t>& b);

}  // namespace fq
