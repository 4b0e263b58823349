#include "fakequant/core/ops/loss.h"

#include <numeric>

#include "fakequant/core/backend/transfer.h"
#include "fakequant/core/ops/detail/operator.h"
#include "fakequant/core/profile.h"

namespace fq::ops {
namespace {

Variable softmax_as(std::string_view op, const Variable& input, int axis, bool logarithm) {
  const auto x = detail::floats(input, op);
  const int at = normalize_axis(axis, x.tensor.rank(), op);
  const AxisView view = axis_view(x.tensor.shape(), at);
  const Tensor rows = x.tensor.to(Layout::row_major);
  Tensor y = detail::empty_like(rows);
  detail::run(y.device(), &detail::Kernels::softmax, rows, view, logarithm, y);
  const auto backward = [saved = detail::Saved(y), view, logarithm](const Tensor& dy) {
    Tensor dx = detail::empty_like(dy);
    detail::run(dx.device(), &detail::Kernels::softmax_backward, dy, saved.get(), view, logarithm, dx);
    return std::vector<Tensor>{dx};
  };
  return detail::record(op, y, {x.variable}, backward, detail::traced([&] {
                          return Attributes{{"axis", std::int64_t{at}}};
                        }));
}

/// As LabelRule has them.
Tensor weights_and_sum(const Tensor& weights, std::int64_t classes, Device device) {
  if (!weights.defined()) return {};
  FQ_CHECK(weights.shape() == Shape{classes} && is_floating(weights.dtype()), "cross_entropy",
           "the class weights are {}, there are {} classes: give a float for each", weights.describe(),
           classes);
  std::vector<double> all = weights.to(DType::f64).to_vector<double>();
  all.push_back(std::accumulate(all.begin(), all.end(), 0.0));
  return detail::constant(Tensor::from(all, {classes + 1}), device);
}

}  // namespace

Variable softmax(const Variable& x, int axis) { return softmax_as("softmax", x, axis, false); }
Variable log_softmax(const Variable& x, int axis) { return softmax_as("log_softmax", x, axis, true); }

Variable cross_entropy(const Variable& logits, const Tensor& labels, double label_smoothing,
                       std::optional<std::int64_t> ignored, const Tensor& class_weights) {
  constexpr std::string_view op = "cross_entropy";
  const ProfileScope profile(op, "forward");
  const auto x = detail::floats(logits, op);
  FQ_CHECK(x.tensor.rank() == 2 && x.tensor.dim(1) > 1, op,
           "the logits are {}: give [N, C] with C of 2 or more, as the softmax of one output is always 1",
           x.tensor.describe());
  FQ_CHECK(labels.defined() && labels.shape() == Shape{x.tensor.dim(0)} &&
               (labels.dtype() == DType::i64 || labels.dtype() == DType::i32) &&
               labels.device() == x.tensor.device(),
           op, "the labels are {}, the logits {}: give i64 [{}] on their device", labels.describe(),
           x.tensor.describe(), x.tensor.dim(0));
  FQ_CHECK(label_smoothing >= 0 && label_smoothing <= 1, op, "label_smoothing is {}: use 0 to 1",
           label_smoothing);
  const Tensor classes = labels.to(DType::i64);
  const Device device = x.tensor.device();
  const LabelRule rule{label_smoothing, ignored, weights_and_sum(class_weights, x.tensor.dim(1), device)};
  detail::run(device, &detail::Kernels::check_indices, classes, x.tensor.dim(1), ignored, op, "label");
  Tensor log_p = detail::empty_like(x.tensor), loss = Tensor::empty({}, log_p.dtype(), device),
         counted = Tensor::empty({}, DType::f64, device);
  detail::run(device, &detail::Kernels::softmax, x.tensor, axis_view(x.tensor.shape(), 1), true, log_p);
  detail::run(device, &detail::Kernels::cross_entropy, log_p, classes, rule, loss, counted);
  const auto backward = [log_p, saved = detail::Saved(classes), rule, counted](const Tensor& dy) {
    Tensor dx = detail::empty_like(log_p);
    detail::run(dx.device(), &detail::Kernels::cross_entropy_backward, log_p, saved.get(), rule, counted,
                dy.to(log_p.dtype()), dx);
    return std::vector<Tensor>{dx};
  };
  return detail::record(op, loss, {x.variable}, backward, detail::traced([&] {
                          return Attributes{{"label_smoothing", label_smoothing}};
                        }));
}

Variable mse_loss(const Variable& x, const Variable& target) {
  constexpr std::string_view op = "mse_loss";
  const ProfileScope profile(op, "forward");
  const auto a = detail::floats(x, op), b = detail::floats_like(target, a.tensor, op);
  FQ_CHECK(a.tensor.shape() == b.tensor.shape(), op,
           "the input is {}, the target {}: the shapes must be equal", to_string(a.tensor.shape()),
           to_string(b.tensor.shape()));
  const Tensor same = b.tensor.to(a.tensor.layout());
  Tensor loss = Tensor::empty({}, same.dtype(), same.device());
  detail::run(same.device(), &detail::Kernels::mse_loss, a.tensor, same, loss);
  const auto backward = [left = detail::Saved(a.tensor), right = detail::Saved(same)](const Tensor& dy) {
    Tensor da = detail::empty_like(left.get()), db = detail::empty_like(da);
    detail::run(da.device(), &detail::Kernels::mse_loss_backward, left.get(), right.get(), dy.to(da.dtype()),
                da, db);
    return std::vector<Tensor>{da, db};
  };
  return detail::record(op, loss, {a.variable, b.variable}, backward);
}

}  // namespace fq::ops
