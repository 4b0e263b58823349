#include <algorithm>
#include <cmath>

#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/ops/loss.h"
#include "fakequant/train/ctc.h"
#include "fakequant/train/losses.h"

namespace fq {
namespace {

/// 1 at the class and 0 elsewhere, [N, C, ..] of labels [N, ..].
Tensor one_hot(const Tensor& labels, const Shape& shape, std::string_view function) {
  const AxisView view = axis_view(shape, 1);
  detail::run(labels.device(), &detail::Kernels::check_indices, labels, view.size, std::nullopt, function,
              "label");
  Tensor out = Tensor::empty(shape, DType::f32, labels.device());
  detail::run(labels.device(), &detail::Kernels::one_hot, labels, view, out);
  return out;
}

/// Labels as numbers in the outputs' shape.
Tensor numbers(const Variable& outputs, const Tensor& labels, bool may_be_classes,
               std::string_view function) {
  const Shape& shape = outputs.shape();
  if (labels.defined() && labels.shape() != shape) {
    Shape of_classes = shape;
    if (shape.size() >= 2) of_classes.erase(of_classes.begin() + 1);
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

/// Labels that no placement has room for say so, where PyTorch's loss is infinite.
void check_places(const Variable& outputs, const Tensor& labels, const losses::CtcOptions& o) {
  if (outputs.rank() != 3 || o.zero_infinity) return;
  const auto rows = label_rows(labels, outputs.dim(1), o.blank, o.padding);
  for (std::size_t n = 0; n < rows.size(); ++n)
    FQ_CHECK(
        ctc_places(rows[n]) <= outputs.dim(2), "ctc",
        "the {} labels of sample {} of the batch take {} places, a blank between equal ones, and the outputs "
        "have {}: give a network of more places, or leave such samples out by zero_infinity=1",
        rows[n].size(), n, ctc_places(rows[n]), outputs.dim(2));
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

}  // namespace fq
