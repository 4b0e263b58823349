#include "fakequant/core/ops/loss.h"

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

}  // namespace

Variable softmax(const Variable& x, int axis) { return softmax_as("softmax", x, axis, false); }
Variable log_softmax(const Variable& x, int axis) { return softmax_as("log_softmax", x, axis, true); }

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
