#include "fakequant/core/ops/loss.h"

#include <numeric>
#include <utility>

#include "fakequant/core/backend/transfer.h"
#include "fakequant/core/detail/moves.h"
#include "fakequant/core/ops/detail/operator.h"
#include "fakequant/core/profile.h"

namespace fq::ops {
namespace {

// Saves y, not x: the gradients of softmax, y (dy - sum dy y), and of its logarithm, dy - exp(y) sum dy, are
// functions of the output.
Variable softmax_operator(std::string_view op, const Variable& input, int axis, bool logarithm) {
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

}  // namespace

Variable softmax(const Variable& x, int axis) { return softmax_operator("softmax", x, axis, false); }
Variable log_softmax(const Variable& x, int axis) { return softmax_operator("log_softmax", x, axis, true); }

Variable mse_loss(const Variable& x, const Variable& target) {
  constexpr std::string_view op = "mse_loss";
  const ProfileScope profile(op, "forward");
  const auto a = detail::floats(x, op), b = detail::matching_floats(target, a.tensor, op);
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

namespace {

constexpr std::string_view kOperator = "cross_entropy";

/// Logits [N, C, ..] as rows [N * .., C].
struct LogitRows {
  Variable input;  ///< receives the gradient
  Tensor rows;
  bool owned;           ///< whether only the operator reads `rows`
  Shape shape;          ///< of the input
  PermuteMove to_rows;  ///< from the input to [N, .., C]; empty if the input has this order

  explicit LogitRows(const Variable& logits) {
    const int rank = logits.rank();
    std::vector<int> classes_first{0, rank - 1};
    for (int axis = 1; axis + 1 < rank; ++axis) classes_first.push_back(axis);
    // Language models transpose their logits for the loss. Reading them before avoids two copies.
    const Variable before = detail::before_transpose(logits, classes_first);
    const auto x = detail::floats(before.defined() ? before : logits, kOperator);
    input = x.variable;
    shape = x.tensor.shape();
    const Accumulator* sums = logits.accumulator();
    owned = before.defined() || (sums != nullptr && !sums->is_deferred()) || rank > 2;
    Tensor ordered = x.tensor;
    if (!before.defined() && rank > 2) {
      to_rows.axes.push_back(0);
      for (int axis = 2; axis < rank; ++axis) to_rows.axes.push_back(axis);
      to_rows.axes.push_back(1);
      ordered = moved(x.tensor, to_rows);
    }
    const std::int64_t classes = logits.dim(1);
    rows = ordered.to(Layout::row_major).reshape({ordered.numel() / classes, classes});
  }
};

/// Reshapes the gradient of the rows to the input.
Tensor as_input(const Tensor& rows, const Shape& shape, const PermuteMove& to_rows) {
  if (to_rows.axes.empty()) return rows.reshape(shape);
  return moved_back(rows.reshape(moved_shape(shape, to_rows)), to_rows, shape);
}

/// Returns the class weights followed by their sum, the form that LabelRule expects.
Tensor weights_and_sum(const Tensor& weights, std::int64_t classes, Device device) {
  if (!weights.defined()) return {};
  FQ_CHECK(weights.shape() == Shape{classes} && is_floating(weights.dtype()), kOperator,
           "the class weights are {}, there are {} classes: use a float for each", weights.describe(),
           classes);
  std::vector<double> all = weights.to(DType::f64).to_vector<double>();
  all.push_back(std::accumulate(all.begin(), all.end(), 0.0));
  return detail::constant(Tensor::from(all, {classes + 1}), device);
}

void check_arguments(const Variable& logits, const Tensor& labels, double label_smoothing) {
  FQ_CHECK(logits.defined(), kOperator, "an input is undefined");
  FQ_CHECK(logits.rank() >= 2 && logits.dim(1) > 1, kOperator,
           "the logits are {}: use [N, C, ..] with C of 2 or more, as the softmax of one output is always 1",
           logits.tensor().describe());
  Shape labels_shape = logits.shape();
  labels_shape.erase(labels_shape.begin() + 1);
  FQ_CHECK(labels.defined() && labels.shape() == labels_shape &&
               (labels.dtype() == DType::i64 || labels.dtype() == DType::i32) &&
               labels.device() == logits.device(),
           kOperator, "the labels are {}, the logits {}: use i64 {} on their device", labels.describe(),
           logits.tensor().describe(), to_string(labels_shape));
  FQ_CHECK(label_smoothing >= 0 && label_smoothing <= 1, kOperator, "label_smoothing is {}: use 0 to 1",
           label_smoothing);
}

}  // namespace

Variable cross_entropy(const Variable& logits, const Tensor& labels, double label_smoothing,
                       std::optional<std::int64_t> ignored, const Tensor& class_weights) {
  const ProfileScope profile(kOperator, "forward");
  check_arguments(logits, labels, label_smoothing);
  const Tensor classes = labels.to(DType::i64).reshape({labels.numel()});
  const Device device = logits.device();
  const LabelRule rule{label_smoothing, ignored, weights_and_sum(class_weights, logits.dim(1), device)};
  detail::run(device, &detail::Kernels::check_indices, classes, logits.dim(1), ignored, kOperator, "label");
  LogitRows x(logits);
  const DType dtype = x.rows.dtype();
  Tensor statistics = Tensor::empty({x.rows.dim(0), 2}, dtype, device);
  Tensor loss = Tensor::empty({}, dtype, device), totals = Tensor::empty({2}, DType::f64, device);
  detail::run(device, &detail::Kernels::cross_entropy, x.rows, classes, rule, statistics, totals, loss);
  // Row statistics instead of log-probabilities: the gradient can take the place of the logits.
  const auto backward = [rows = detail::Saved(std::move(x.rows)), owned = x.owned, shape = x.shape,
                         to_rows = x.to_rows, rule, statistics, totals,
                         targets = detail::Saved(classes)](const Tensor& dy) mutable {
    const Tensor logit_rows = rows.get();
    rows = {};
    Tensor dx = owned ? detail::gradient_buffer(logit_rows) : detail::empty_like(logit_rows);
    detail::run(dx.device(), &detail::Kernels::cross_entropy_backward, logit_rows, statistics, targets.get(),
                rule, totals, dy.to(dx.dtype()), dx);
    return std::vector<Tensor>{as_input(dx, shape, to_rows)};
  };
  return detail::record(kOperator, loss, {std::exchange(x.input, {})}, backward, detail::traced([&] {
                          return Attributes{{"label_smoothing", label_smoothing}};
                        }));
}

}  // namespace fq::ops
