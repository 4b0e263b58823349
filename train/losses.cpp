#include "fakequant/train/losses.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/backend/transfer.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/ops/loss.h"
#include "fakequant/core/ops/ops.h"

namespace fq::losses {
namespace {

/// Returns the target with the dtype and device of the outputs.
Variable like(const Variable& outputs, const Tensor& target, std::string_view function) {
  FQ_CHECK(outputs.defined() && target.defined() && target.shape() == outputs.shape(), function,
           "the outputs are {}, the target is {}: the shapes must be equal",
           outputs.defined() ? to_string(outputs.shape()) : "undefined", target.describe());
  return target.to(outputs.as_float().tensor().dtype()).to(outputs.device());
}

// Returns a weight as a constant with the dtype and device of the outputs.
Variable factor(const Variable& outputs, const Tensor& weight) {
  return detail::constant(weight.to(outputs.as_float().tensor().dtype()), outputs.device());
}

// Returns the cross entropy of sigmoid(y) for each element: (1 - t) y - truth * log sigmoid(y). This form
// does not overflow for large |y|. `truth` is the weight 1 + (positive - 1) t of the log term.
Variable binary(const Variable& y, const Variable& t, const Variable& truth) {
  const Variable untrue = ops::multiply(ops::shift(ops::neg(t), 1.0), y);
  return ops::sub(untrue, ops::multiply(truth, ops::log_sigmoid(y)));
}

void check_smoothing(double label_smoothing, std::string_view function) {
  FQ_CHECK(label_smoothing >= 0 && label_smoothing <= 1, function, "label_smoothing is {}: use 0 to 1",
           label_smoothing);
}

}  // namespace

Variable l1(const Variable& outputs, const Tensor& target) {
  return ops::mean(ops::abs(ops::sub(outputs, like(outputs, target, "l1"))));
}

Variable mse(const Variable& outputs, const Tensor& target) {
  return ops::mse_loss(outputs, like(outputs, target, "mse"));
}

Variable huber(const Variable& outputs, const Tensor& target, double delta) {
  FQ_CHECK(delta > 0, "huber", "delta is {}: it must be above 0", delta);
  const Variable distance = ops::abs(ops::sub(outputs, like(outputs, target, "huber")));
  // With n = min(d, delta), n * (d - n / 2) is d^2 / 2 for small d and delta * (d - delta / 2) for large d.
  // One formula for both branches needs no mask.
  const Variable near = ops::clip(distance, 0.0, delta);
  return ops::mean(ops::multiply(near, ops::sub(distance, ops::scale(near, 0.5))));
}

Variable bce_with_logits(const Variable& outputs, const Tensor& target, const Tensor& weight,
                         const Tensor& positive) {
  const Variable t = like(outputs, target, "bce_with_logits");
  const Variable truth = positive.defined()
                             ? ops::shift(ops::multiply(ops::shift(factor(outputs, positive), -1.0), t), 1.0)
                             : Variable(Tensor::full({}, 1.0, t.tensor().dtype(), t.device()));
  const Variable each = binary(outputs, t, truth);
  return ops::mean(weight.defined() ? ops::multiply(factor(outputs, weight), each) : each);
}

Variable focal(const Variable& outputs, const Tensor& target, double alpha, double gamma) {
  const Variable t = like(outputs, target, "focal"),
                 one = Tensor::full({}, 1.0, t.tensor().dtype(), t.device());
  const Variable p = ops::sigmoid(outputs), other = ops::shift(ops::neg(t), 1.0);
  // 1 - p_t: the probability of the wrong class.
  const Variable missed = ops::add(ops::multiply(p, other), ops::multiply(ops::shift(ops::neg(p), 1.0), t));
  const Variable each = ops::multiply(binary(outputs, t, one), ops::pow(missed, gamma));
  if (alpha < 0) return ops::mean(each);
  return ops::mean(ops::multiply(ops::add(ops::scale(t, alpha), ops::scale(other, 1.0 - alpha)), each));
}

Variable dice(const Variable& outputs, const Tensor& target, double smooth) {
  const Variable t = like(outputs, target, "dice");
  FQ_CHECK(outputs.rank() >= 3, "dice", "the outputs are {}: use [N, C, ..]", to_string(outputs.shape()));
  // Sums are over the positions only: each sample and channel has a dice coefficient of its own.
  std::vector<int> axes;
  for (int axis = 2; axis < outputs.rank(); ++axis) axes.push_back(axis);
  const Variable p = ops::sigmoid(outputs);
  const Variable both = ops::shift(ops::scale(ops::sum(ops::multiply(p, t), axes), 2.0), smooth),
                 all = ops::shift(ops::add(ops::sum(p, axes), ops::sum(t, axes)), smooth);
  return ops::shift(ops::neg(ops::mean(ops::div(both, all))), 1.0);
}

Variable cross_entropy(const Variable& outputs, const Tensor& labels, const CrossEntropyOptions& options) {
  constexpr std::string_view function = "cross_entropy";
  FQ_CHECK(outputs.defined() && outputs.rank() >= 2 && labels.defined() && labels.dtype() == DType::i64,
           function, "the outputs are {}, the labels {}: use [N, C, ..] and i64 [N, ..]",
           outputs.defined() ? to_string(outputs.shape()) : "undefined", labels.describe());
  Shape wanted = outputs.shape();
  wanted.erase(wanted.begin() + 1);
  FQ_CHECK(labels.shape() == wanted, function, "the outputs are {}, the labels {}: use {}",
           to_string(outputs.shape()), to_string(labels.shape()), to_string(wanted));
  check_smoothing(options.label_smoothing, function);
  return ops::cross_entropy(outputs, labels.to(outputs.device()), options.label_smoothing,
                            options.ignore_index, options.class_weights);
}

Variable soft_cross_entropy(const Variable& outputs, const Tensor& target,
                            const CrossEntropyOptions& options) {
  constexpr std::string_view function = "soft_cross_entropy";
  Variable t = like(outputs, target, function);
  FQ_CHECK(outputs.rank() >= 2, function, "the outputs are {}: use [N, C, ..]", to_string(outputs.shape()));
  const std::int64_t classes = outputs.shape()[1];
  check_smoothing(options.label_smoothing, function);
  // Smoothing comes before the class weights, as in torch.nn.functional.cross_entropy with probabilities.
  if (options.label_smoothing > 0)
    t = ops::shift(ops::scale(t, 1.0 - options.label_smoothing), options.label_smoothing / double(classes));
  if (options.class_weights.defined()) {
    Shape wide(static_cast<std::size_t>(outputs.rank()), 1);
    wide[1] = classes;
    FQ_CHECK(options.class_weights.shape() == Shape{classes}, function,
             "the class weights are {}, there are {} classes: use a number for each",
             options.class_weights.describe(), classes);
    t = ops::multiply(t, factor(outputs, options.class_weights.reshape(wide)));
  }
  return ops::neg(ops::mean(ops::sum(ops::multiply(ops::log_softmax(outputs, 1), t), {1})));
}

}  // namespace fq::losses

namespace fq {
namespace {

/// Returns a tensor [N, C, ..] from labels [N, ..]: 1 at the class and 0 elsewhere.
Tensor one_hot(const Tensor& labels, const Shape& shape, std::string_view function) {
  const AxisView view = axis_view(shape, 1);
  detail::run(labels.device(), &detail::Kernels::check_indices, labels, view.size, std::nullopt, function,
              "label");
  Tensor out = Tensor::empty(shape, DType::f32, labels.device());
  detail::run(labels.device(), &detail::Kernels::one_hot, labels, view, out);
  return out;
}

/// Returns labels as numbers, in the shape of the outputs.
Tensor numbers(const Variable& outputs, const Tensor& labels, bool may_be_classes,
               std::string_view function) {
  const Shape& shape = outputs.shape();
  if (labels.defined() && labels.shape() != shape) {
    Shape of_classes = shape;
    if (shape.size() >= 2) of_classes.erase(of_classes.begin() + 1);
    // With one column, i64 labels are 0 or 1 themselves, so that classes require more than one column.
    if (may_be_classes && labels.dtype() == DType::i64 && labels.shape() == of_classes && shape[1] > 1)
      return one_hot(labels, shape, function);
    if (labels.shape() == of_classes && shape[1] == 1) return labels.to(DType::f32).reshape(shape);
  }
  return labels.defined() ? labels.to(DType::f32) : labels;
}

Loss cross_entropy_loss(const LossOptions& o) {
  losses::CrossEntropyOptions options;
  options.label_smoothing = o.label_smoothing;
  options.ignore_index = o.ignore_index.value_or(options.ignore_index);
  if (!o.class_weights.empty())
    options.class_weights = Tensor::from(o.class_weights, {std::ssize(o.class_weights)});
  // The loss without options on [N, C] has a fused operator.
  const bool plain = o.class_weights.empty() && !o.ignore_index;
  return
      [options, plain, ignores = o.ignore_index.has_value()](const Variable& outputs, const Tensor& labels) {
        if (is_floating(labels.dtype()) && labels.shape() == outputs.shape()) {
          FQ_CHECK(!ignores, "cross_entropy",
                   "shares of classes have no label to ignore: leave ignore_index out");
          return losses::soft_cross_entropy(outputs, labels, options);
        }
        if (plain && outputs.rank() == 2) return ops::cross_entropy(outputs, labels, options.label_smoothing);
        return losses::cross_entropy(outputs, labels, options);
      };
}

/// Throws for labels that require more positions than the outputs have. PyTorch's loss is infinite there.
void check_places(const Variable& outputs, const Tensor& labels, const losses::CtcOptions& o) {
  // Other ranks are reported by losses::ctc.
  if (outputs.rank() != 3 || o.zero_infinity) return;
  const auto rows = label_rows(labels, outputs.dim(1), o.blank, o.padding);
  for (std::size_t n = 0; n < rows.size(); ++n)
    FQ_CHECK(ctc_positions(rows[n]) <= outputs.dim(2), "ctc",
             "the {} labels of sample {} of the batch require {} positions, with a blank between equal "
             "labels, and the outputs have {}: use a network with more positions, or skip these samples with "
             "zero_infinity=1",
             rows[n].size(), n, ctc_positions(rows[n]), outputs.dim(2));
}

Loss ctc_loss(const LossOptions& o) {
  const losses::CtcOptions options{o.blank, o.ignore_index, {}, o.zero_infinity};
  return [options](const Variable& outputs, const Tensor& labels) {
    check_places(outputs, labels, options);
    return losses::ctc(outputs, labels, options);
  };
}

void check(const LossOptions& o) {
  FQ_CHECK(std::ranges::find(loss_kinds(), o.kind) != loss_kinds().end(), "loss", "there is no loss '{}'{}",
           o.kind, detail::did_you_mean(o.kind, loss_kinds()));
  FQ_CHECK(o.label_smoothing >= 0 && o.label_smoothing <= 1, "loss", "label_smoothing is {}: use 0 to 1",
           o.label_smoothing);
  FQ_CHECK(std::ranges::all_of(o.class_weights, [](double w) { return std::isfinite(w) && w >= 0; }) &&
               std::isfinite(o.positive_weight) && o.positive_weight >= 0,
           "loss", "weights of classes are finite numbers of 0 or more");
  FQ_CHECK(o.delta > 0 && o.gamma >= 0 && o.alpha <= 1 && o.smooth >= 0, "loss",
           "delta is {}, gamma {}, alpha {}, smooth {}: use more than 0, 0 or more, at most 1, 0 or more",
           o.delta, o.gamma, o.alpha, o.smooth);
  FQ_CHECK(o.blank >= 0, "loss", "blank is {}: it is a class, 0 or more", o.blank);
}

constexpr std::string_view kDistillation = "distillation";
constexpr int kClasses = 1;

// Returns the mean over rows of sum_c p_c (log p_c - log q_c), times the square of the temperature. A row is
// a position outside of the class axis.
Variable divergence(const Variable& outputs, const Variable& teacher, double temperature) {
  const auto log_probabilities = [&](const Variable& x) {
    return ops::log_softmax(ops::scale(x, 1 / temperature), kClasses);
  };
  const Variable log_p = log_probabilities(teacher), distance = ops::sub(log_p, log_probabilities(outputs));
  // The sum is over all elements; the number of rows is the number of elements without the class axis.
  const double rows =
      static_cast<double>(log_p.tensor().numel()) / static_cast<double>(log_p.shape()[kClasses]);
  return ops::scale(ops::sum(ops::multiply(distance, ops::exp(log_p))), temperature * temperature / rows);
}

}  // namespace

const std::vector<std::string>& loss_kinds() {
  static const std::vector<std::string> all{"cross_entropy", "bce", "focal", "dice",
                                            "ctc",           "mse", "l1",    "huber"};
  return all;
}

bool takes_classes(const LossOptions& options) { return options.kind == "cross_entropy"; }

Loss make_loss(const LossOptions& options) {
  check(options);
  if (takes_classes(options)) return cross_entropy_loss(options);
  if (options.kind == "ctc") return ctc_loss(options);
  const bool binary = options.kind == "bce" || options.kind == "focal" || options.kind == "dice";
  return [o = options, binary](const Variable& outputs, const Tensor& labels) {
    const Variable y = outputs.as_float();
    const Tensor t = numbers(y, labels, binary, o.kind);
    if (o.kind == "focal") return losses::focal(y, t, o.alpha, o.gamma);
    if (o.kind == "dice") return losses::dice(y, t, o.smooth);
    if (o.kind == "mse") return losses::mse(y, t);
    if (o.kind == "l1") return losses::l1(y, t);
    if (o.kind == "huber") return losses::huber(y, t, o.delta);
    const Tensor positive = o.positive_weight == 1 ? Tensor() : Tensor::full({}, o.positive_weight);
    return losses::bce_with_logits(y, t, {}, positive);
  };
}

const std::vector<std::string>& distillation_kinds() {
  static const std::vector<std::string> kinds{"kl", "mse"};
  return kinds;
}

void check(const DistillationOptions& o) {
  FQ_CHECK(std::ranges::find(distillation_kinds(), o.kind) != distillation_kinds().end(), kDistillation,
           "there is no kind '{}'{}", o.kind, detail::did_you_mean(o.kind, distillation_kinds()));
  FQ_CHECK(o.temperature > 0 && std::isfinite(o.temperature), kDistillation,
           "the temperature is {}: use more than 0", o.temperature);
  FQ_CHECK(o.weight >= 0 && o.weight <= 1, kDistillation, "the weight is {}: use 0 to 1", o.weight);
}

Variable distillation_loss(const Variable& outputs, const Tensor& teacher,
                           const DistillationOptions& options) {
  check(options);
  FQ_CHECK(outputs.defined() && teacher.defined() && outputs.shape() == teacher.shape(), kDistillation,
           "the outputs are {}, the outputs of the teacher {}: use a teacher with the same shape of outputs",
           outputs.defined() ? to_string(outputs.shape()) : "undefined", teacher.describe());
  const Variable y = outputs.as_float();
  const Variable wanted(teacher.to(y.tensor().dtype()).to(y.device()));
  if (options.kind == "mse") return ops::mse_loss(y, wanted);
  FQ_CHECK(y.rank() > kClasses, kDistillation,
           "the outputs are {}: kl is for [N, C, ..], use mse for numbers", to_string(y.shape()));
  return divergence(y, wanted, options.temperature);
}

}  // namespace fq
