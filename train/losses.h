#pragma once

/// Loss functions in addition to cross entropy (core/ops/loss.h), for training loops and
/// ObjectiveOptions::loss; knowledge distillation (Hinton et al. 2015); connectionist temporal classification
/// of label sequences (CTC; Graves et al. 2006).
///
///     TrainerOptions options;
///     options.objective.loss = [](const Variable& y, const Tensor& t) { return losses::huber(y, t); };
///     options.objective.distillation = {.teacher = float_network, .temperature = 4, .weight = 0.9};
///     const Tensor labels = ctc_decode(predict(model, test));  // i64 [N, L], -1 after the last label
///
/// Outputs are f32 or f64; codes and int32 sums are converted to floats. A target is of any float type and
/// has the shape of the outputs, unless noted. Targets get no gradient. Each loss is a scalar: the mean over
/// elements, unless noted. Losses throw ArgumentError for other shapes. Each formula is the same as in the
/// PyTorch function for the same purpose.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fakequant/core/variable.h"

namespace fq {

class Module;

/// Function that computes the loss of a batch from its outputs and labels: a scalar, the mean over the
/// samples.
using Loss = std::function<Variable(const Variable& outputs, const Tensor& labels)>;

namespace losses {

/// Returns the mean of |y - t|.
[[nodiscard]] Variable l1(const Variable& outputs, const Tensor& target);
/// Returns the mean of (y - t)^2.
[[nodiscard]] Variable mse(const Variable& outputs, const Tensor& target);
/// Returns the mean of (y - t)^2 / 2 where |y - t| <= delta, else delta * (|y - t| - delta / 2) (Huber 1964).
/// `delta` is above 0.
[[nodiscard]] Variable huber(const Variable& outputs, const Tensor& target, double delta = 1.0);

/// Returns the mean of weight * ((1 - t) * y + (1 + (positive - 1) * t) * log(1 + exp(-y))): the cross
/// entropy of sigmoid(y), for one output of two classes and for several labels per sample. `positive` is the
/// weight of positive targets. `weight` and `positive` broadcast to the outputs; undefined means 1.
[[nodiscard]] Variable bce_with_logits(const Variable& outputs, const Tensor& target,
                                       const Tensor& weight = {}, const Tensor& positive = {});
/// Returns the mean of the binary cross entropy of sigmoid(y) times alpha_t * (1 - p_t)^gamma. p_t is the
/// probability of the true class; alpha_t is alpha where t is 1, else 1 - alpha. A negative alpha omits the
/// factor alpha_t (Lin et al., arXiv:1708.02002; torchvision's sigmoid_focal_loss).
[[nodiscard]] Variable focal(const Variable& outputs, const Tensor& target, double alpha = 0.25,
                             double gamma = 2.0);
/// Returns the mean over samples and channels of 1 - (2 * sum p t + smooth) / (sum p + sum t + smooth), where
/// p = sigmoid(y) and sums are over all axes except the first two (Milletari et al., arXiv:1606.04797).
/// Outputs are [N, C, ..].
[[nodiscard]] Variable dice(const Variable& outputs, const Tensor& target, double smooth = 1.0);

/// Options of `cross_entropy`.
struct CrossEntropyOptions {
  Tensor class_weights = {};         ///< [C], preferably on the host; undefined for weights of 1
  std::int64_t ignore_index = -100;  ///< label that is left out of the mean
  double label_smoothing = 0.0;      ///< smoothing of the target, 0 to 1
};
/// Returns the mean of -log softmax(y)[label] over the labels that are not ignored, weighted by the weight of
/// their class. Outputs are [N, C, ..] with two classes or more; labels are i64 [N, ..], 0 to C - 1, on any
/// device. Returns 0 if all labels are ignored.
[[nodiscard]] Variable cross_entropy(const Variable& outputs, const Tensor& labels,
                                     const CrossEntropyOptions& options);
/// Returns the cross entropy of target probabilities, [N, C, ..] as the outputs: the mean over [N, ..] of
/// -sum_c w t' log softmax(y), with the class weights w and t' = (1 - label_smoothing) t + label_smoothing /
/// C. Ignores no label.
[[nodiscard]] Variable soft_cross_entropy(const Variable& outputs, const Tensor& target,
                                          const CrossEntropyOptions& options = {});

}  // namespace losses

/// Options of a loss that is selected by name, for options and files.
struct LossOptions {
  /// "cross_entropy", "bce" (bce_with_logits), "focal", "dice", "ctc", "mse", "l1" or "huber".
  std::string kind = "cross_entropy";
  double label_smoothing = 0;              ///< smoothing of "cross_entropy", 0 to 1
  std::vector<double> class_weights = {};  ///< weights for "cross_entropy", one per class; empty for 1
  /// Ignored label of "cross_entropy"; padding of "ctc" label rows.
  std::optional<std::int64_t> ignore_index = {};
  double positive_weight = 1;      ///< weight of positive targets of "bce"
  double alpha = 0.25, gamma = 2;  ///< factors of "focal"
  double delta = 1;                ///< threshold of "huber"
  double smooth = 1;               ///< smoothing of "dice"
  std::int64_t blank = 0;          ///< blank class of "ctc"
  bool zero_infinity = false;      ///< `zero_infinity` of "ctc"
};

/// Returns the allowed values of LossOptions::kind.
[[nodiscard]] const std::vector<std::string>& loss_kinds();
/// Returns whether the labels of the loss are class indices. The prediction is then the class with the
/// largest output.
[[nodiscard]] bool takes_classes(const LossOptions& options);

/// Returns the loss function of `options`. It accepts labels as data sets have them. Integers become floats
/// and numbers [N] become [N, 1]. For "bce", "focal" and "dice", classes [N, ..] become [N, C, ..] with 1 at
/// the class and 0 elsewhere. For "cross_entropy", floats with the shape of the outputs are target
/// probabilities. Throws ArgumentError for an unknown kind, with a suggestion, and for options out of range.
/// The returned function throws ArgumentError for "ctc" labels that do not fit into the positions of the
/// outputs, unless `zero_infinity` is set.
[[nodiscard]] Loss make_loss(const LossOptions& options);

/// Options of distillation.
struct DistillationOptions {
  /// Network whose outputs are the targets of distillation; null for none. It must accept the same samples
  /// and have the same output shape as the trained network, and may be on any device. It runs in evaluation
  /// mode. The run moves it to the device of the run, without other changes.
  std::shared_ptr<Module> teacher = nullptr;
  std::string kind = "kl";  ///< loss of the student, one of `distillation_kinds`
  /// Temperature of "kl", above 0; a higher one gives more weight to small probabilities.
  double temperature = 2;
  /// Share of the teacher in the loss, 0 to 1. The labels have the rest, which is 0 by default.
  double weight = 1;
};

/// Returns the kinds of distillation loss: "kl" for class outputs [N, C, ..], along C; "mse" for numbers, and
/// for several labels per sample.
[[nodiscard]] const std::vector<std::string>& distillation_kinds();

/// Returns the distance of outputs from the outputs of the teacher, as a scalar:
///
/// - "kl": the mean over all axes except the class axis of T^2 * sum_c p_c * (log p_c - log q_c). p and q are
///   the softmax of the teacher's and the student's outputs, both divided by T. The factor T^2 keeps the size
///   of the gradients when T grows.
/// - "mse": the mean of (y - t)^2 over all elements.
///
/// The teacher gets no gradient. Throws ArgumentError for different shapes, for an unknown kind, with a
/// suggestion, and for options out of range.
[[nodiscard]] Variable distillation_loss(const Variable& outputs, const Tensor& teacher,
                                         const DistillationOptions& options);

/// Throws ArgumentError for options that `distillation_loss` rejects, and for a weight out of range.
void check(const DistillationOptions& options);

namespace losses {

/// Options of `ctc`.
struct CtcOptions {
  std::int64_t blank = 0;  ///< class of the blank
  /// Number that fills the end of a row of labels, in addition to negative numbers and the blank. 255 for u8
  /// labels.
  std::optional<std::int64_t> padding = {};
  Tensor lengths = {};  ///< i64 [N], number of positions used of each sample, 0 to L; undefined for all
  /// Whether samples with labels that do not fit into their positions have loss 0 and no gradient, instead of
  /// an infinite loss.
  bool zero_infinity = false;
};

/// Returns the mean over samples of -log P(labels) / max(1, number of labels). P is the probability of all
/// alignments of the labels, in order, with a blank between equal neighbours. Outputs are logits [N, C, L],
/// for a softmax over C at each of the L positions. Labels are integers [N, S], each row padded at its end,
/// or [N] with one label each. Gives the numbers of PyTorch's ctc_loss of log_softmax with reduction "mean";
/// sums are in f64. Throws ArgumentError for other shapes, for labels that are not classes, and for labels
/// after padding.
[[nodiscard]] Variable ctc(const Variable& outputs, const Tensor& labels, const CtcOptions& options = {});

}  // namespace losses

/// Returns the labels of each row, without padding. `classes` is the bound of labels. Throws ArgumentError as
/// `losses::ctc` does.
[[nodiscard]] std::vector<std::vector<std::int64_t>> label_rows(const Tensor& labels, std::int64_t classes,
                                                                std::int64_t blank = 0,
                                                                std::optional<std::int64_t> padding = {});

/// Returns the smallest number of positions that the labels fit into: one per label, and one between equal
/// neighbours.
[[nodiscard]] std::int64_t ctc_positions(const std::vector<std::int64_t>& labels);

/// Decodes outputs [N, C, L] greedily: takes the largest class at each position, then removes repeats, then
/// blanks. Returns i64 [N, L] on the host, padded with -1.
[[nodiscard]] Tensor ctc_decode(const Tensor& outputs, std::int64_t blank = 0);

/// Returns the smallest number of insertions, deletions and substitutions that turn `a` into `b`
/// (Levenshtein).
[[nodiscard]] std::int64_t edit_distance(const std::vector<std::int64_t>& a,
                                         const std::vector<std::int64_t>& b);

}  // namespace fq
