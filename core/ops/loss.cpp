#include "fakequant/core/ops/loss.h"

#include <algorithm>

#include "fakequant/core/cpu/map.h"
#include "fakequant/core/cpu/softmax.h"
#include "fakequant/core/ops/operator.h"
#include "fakequant/core/profile.h"

namespace fq::ops {
namespace {

Variable softmax_as(std::string_view op, const Variable& input, int axis, bool logarithm) {
  const auto x = detail::floats(input, op);
  const int at = normalize_axis(axis, x.tensor.rank(), op);
  const AxisView view = axis_view(x.tensor.shape(), at);
  const Tensor rows = x.tensor.to(Layout::row_major);
  Tensor y = detail::empty_like(rows);
  if (detail::computes(y)) cpu::softmax(rows, view, logarithm, y);
  const auto backward = [saved = detail::Saved(y), view, logarithm](const Tensor& dy) {
    Tensor dx = detail::empty_like(dy);
    if (detail::computes(dx)) cpu::softmax_backward(dy, saved.get(), view, logarithm, dx);
    return std::vector<Tensor>{dx};
  };
  return detail::record(op, y, {x.variable}, backward, detail::traced([&] {
                          return Attributes{{"axis", std::int64_t{at}}};
                        }));
}

void check_labels(const Tensor& labels, std::int64_t classes) {
  if (!detail::computes(labels)) return;
  const auto* values = labels.data<std::int64_t>();
  for (std::int64_t n = 0; n < labels.numel(); ++n)
    FQ_CHECK(values[n] >= 0 && values[n] < classes, "cross_entropy", "the label of row {} is {}: use 0 to {}",
             n, values[n], classes - 1);
}

/// Rank 0, total / count; unspecified on meta.
Tensor mean_of(double total, std::int64_t count, const Tensor& like) {
  if (!detail::computes(like)) return Tensor::empty({}, like.dtype(), like.device());
  return Tensor::scalar(count == 0 ? 0.0 : total / static_cast<double>(count), like.dtype());
}

}  // namespace

Variable softmax(const Variable& x, int axis) { return softmax_as("softmax", x, axis, false); }
Variable log_softmax(const Variable& x, int axis) { return softmax_as("log_softmax", x, axis, true); }

Variable cross_entropy(const Variable& logits, const Tensor& labels, double label_smoothing) {
  constexpr std::string_view op = "cross_entropy";
  const ProfileScope profile(op, "forward");
  const auto x = detail::floats(logits, op);
  FQ_CHECK(x.tensor.rank() == 2 && x.tensor.dim(1) > 0, op, "the logits are {}: give [N, C]",
           x.tensor.describe());
  FQ_CHECK(labels.defined() && labels.shape() == Shape{x.tensor.dim(0)} &&
               (labels.dtype() == DType::i64 || labels.dtype() == DType::i32),
           op, "the labels are {}, the logits {}: give i64 [{}]", labels.describe(),
           to_string(x.tensor.shape()), x.tensor.dim(0));
  FQ_CHECK(label_smoothing >= 0 && label_smoothing <= 1, op, "label_smoothing is {}: use 0 to 1",
           label_smoothing);
  const Tensor classes = labels.to(DType::i64);
  check_labels(classes, x.tensor.dim(1));
  const std::int64_t count = x.tensor.dim(0);
  Tensor log_p = detail::empty_like(x.tensor);
  double total = 0;
  if (detail::computes(log_p)) {
    cpu::softmax(x.tensor, axis_view(x.tensor.shape(), 1), true, log_p);
    total = cpu::cross_entropy_sum(log_p, classes, label_smoothing);
  }
  const auto backward = [log_p, saved = detail::Saved(classes), label_smoothing, count](const Tensor& dy) {
    Tensor dx = detail::empty_like(log_p);
    if (!detail::computes(dx)) return std::vector<Tensor>{dx};
    const double factor = dy.item() / static_cast<double>(std::max<std::int64_t>(count, 1));
    cpu::cross_entropy_backward(log_p, saved.get(), label_smoothing, factor, dx);
    return std::vector<Tensor>{dx};
  };
  return detail::record(op, mean_of(total, count, log_p), {x.variable}, backward, detail::traced([&] {
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
  const std::int64_t count = a.tensor.numel();
  const double total = detail::computes(a.tensor) ? cpu::squared_distance(a.tensor, same) : 0.0;
  const auto backward = [left = detail::Saved(a.tensor), right = detail::Saved(same),
                         count](const Tensor& dy) {
    Tensor da = detail::empty_like(left.get()), db = detail::empty_like(da);
    if (!detail::computes(da)) return std::vector<Tensor>{da, db};
    const double factor = 2.0 * dy.item() / static_cast<double>(std::max<std::int64_t>(count, 1));
    detail::visit_float(da.dtype(), op, [&]<class T>(T) {
      const T by = static_cast<T>(factor);
      cpu::map<T>(left.get(), right.get(), da, [by](T p, T q) { return by * (p - q); });
      cpu::map<T>(da, db, [](T v) { return -v; });
    });
    return std::vector<Tensor>{da, db};
  };
  return detail::record(op, mean_of(total, count, a.tensor), {a.variable, b.variable}, backward);
}

}  // namespace fq::ops
