#include "fakequant/train/losses.h"

#include "fakequant/core/backend/transfer.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/ops/ops.h"

namespace fq::losses {
namespace {

/// The target in the type and on the device of the outputs.
Variable like(const Variable& outputs, const Tensor& target, std::string_view function) {
  FQ_CHECK(outputs.defined() && target.defined() && target.shape() == outputs.shape(), function,
           "the outputs are {}, the target is {}: the shapes must be equal",
           outputs.defined() ? to_string(outputs.shape()) : "undefined", target.describe());
  return target.to(outputs.as_float().tensor().dtype()).to(outputs.device());
}

Variable factor(const Variable& outputs, const Tensor& weight) {
  return detail::constant(weight.to(outputs.as_float().tensor().dtype()), outputs.device());
}

/// The cross entropy of sigmoid(y), element by element; `truth` multiplies the part of what is true.
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
  const Variable missed = ops::add(ops::multiply(p, other), ops::multiply(ops::shift(ops::neg(p), 1.0), t));
  const Variable each = ops::multiply(binary(outputs, t, one), ops::pow(missed, gamma));
  if (alpha < 0) return ops::mean(each);
  return ops::mean(ops::multiply(ops::add(ops::scale(t, alpha), ops::scale(other, 1.0 - alpha)), each));
}

Variable dice(const Variable& outputs, const Tensor& target, double smooth) {
  const Variable t = like(outputs, target, "dice");
  FQ_CHECK(outputs.rank() >= 3, "dice", "the outputs are {}: give [N, C, ..]", to_string(outputs.shape()));
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
           function, "the outputs are {}, the labels {}: give [N, C, ..] and i64 [N, ..]",
           outputs.defined() ? to_string(outputs.shape()) : "undefined", labels.describe());
  Shape wanted = outputs.shape();
  wanted.erase(wanted.begin() + 1);
  FQ_CHECK(labels.shape() == wanted, function, "the outputs are {}, the labels {}: give {}",
           to_string(outputs.shape()), to_string(labels.shape()), to_string(wanted));
  check_smoothing(options.label_smoothing, function);
  return ops::cross_entropy(outputs, labels.to(outputs.device()), options.label_smoothing,
                            options.ignore_index, options.class_weights);
}

Variable soft_cross_entropy(const Variable& outputs, const Tensor& target,
                            const CrossEntropyOptions& options) {
  constexpr std::string_view function = "soft_cross_entropy";
  Variable t = like(outputs, target, function);
  FQ_CHECK(outputs.rank() >= 2, function, "the outputs are {}: give [N, C, ..]", to_string(outputs.shape()));
  const std::int64_t classes = outputs.shape()[1];
  check_smoothing(options.label_smoothing, function);
  if (options.label_smoothing > 0)
    t = ops::shift(ops::scale(t, 1.0 - options.label_smoothing), options.label_smoothing / double(classes));
  if (options.class_weights.defined()) {
    Shape wide(static_cast<std::size_t>(outputs.rank()), 1);
    wide[1] = classes;
    FQ_CHECK(options.class_weights.shape() == Shape{classes}, function,
             "the class weights are {}, there are {} classes: give a number for each",
             options.class_weights.describe(), classes);
    t = ops::multiply(t, factor(outputs, options.class_weights.reshape(wide)));
  }
  return ops::neg(ops::mean(ops::sum(ops::multiply(ops::log_softmax(outputs, 1), t), {1})));
}

}  // namespace fq::losses
