#include "fakequant/core/ops/elementwise.h"

#include "fakequant/core/ops/detail/operator.h"

namespace fq::ops {
namespace {

Layout result_layout(const Tensor& a, const Tensor& b, const Shape& shape) {
  if (shape.size() != 4) return Layout::row_major;
  if (a.shape() == shape) return a.layout();
  if (b.shape() == shape) return b.layout();
  return a.layout() == Layout::channels_last ? a.layout() : b.layout();
}

Tensor combine(std::string_view op, const Tensor& a, const Tensor& b, const detail::Arithmetic& f) {
  const Shape shape = broadcast_shapes(a.shape(), b.shape(), op);
  Tensor y = Tensor::empty(shape, a.dtype(), a.device(), result_layout(a, b, shape));
  detail::run(y.device(), &detail::Kernels::combine, a, b, f, y);
  return y;
}

Tensor scaled(const Tensor& x, double factor) {
  Tensor y = detail::empty_like(x);
  detail::run(y.device(), &detail::Kernels::scale, x, factor, y);
  return y;
}

/// A gradient summed over the axes along which its input, of that shape, was broadcast.
Tensor reduced(const Tensor& dy, const Shape& shape) {
  if (dy.shape() == shape) return dy;
  Tensor dx = Tensor::empty(shape, dy.dtype(), dy.device());
  detail::run(dx.device(), &detail::Kernels::sum_to, dy, dx);
  return dx;
}

Tensor product(const Tensor& a, const Tensor& b) { return combine("multiply", a, b, detail::Multiply{}); }

Variable add_codes(const Variable& a, const Variable& b) {
  const auto& x = *a.quantized();
  const auto& y = *b.quantized();
  CodeAddition sum{detail::with_codes(x, x.codes), detail::with_codes(y, y.codes.to(x.layout()))};
  return detail::record("add", Accumulator{std::move(sum)}, {a, b}, [](const Tensor& dy) {
    return std::vector<Tensor>{dy, dy};
  });
}

/// a + sign * b
Variable add_or_sub(std::string_view op, const Variable& a, const Variable& b, const detail::Arithmetic& f,
                    double sign) {
  const auto x = detail::floats(a, op);
  const auto y = detail::floats_like(b, x.tensor, op);
  const auto backward = [from = x.tensor.shape(), to = y.tensor.shape(), sign,
                         da = x.variable.requires_grad(), db = y.variable.requires_grad()](const Tensor& dy) {
    std::vector<Tensor> out(2);
    if (da) out[0] = reduced(dy, from);
    if (db) out[1] = sign > 0 ? reduced(dy, to) : scaled(reduced(dy, to), sign);
    return out;
  };
  return detail::record(op, combine(op, x.tensor, y.tensor, f), {x.variable, y.variable}, backward);
}

Variable scale_as(std::string_view op, const Variable& input, double factor, Attributes attributes) {
  const auto x = detail::floats(input, op);
  const auto backward = [factor](const Tensor& dy) { return std::vector<Tensor>{scaled(dy, factor)}; };
  return detail::record(op, scaled(x.tensor, factor), {x.variable}, backward, std::move(attributes));
}

}  // namespace

Variable add(const Variable& a, const Variable& b) {
  if (a.quantized() != nullptr && b.quantized() != nullptr && detail::is_plain(*a.quantized()) &&
      detail::is_plain(*b.quantized()) && a.shape() == b.shape())
    return add_codes(a, b);
  return add_or_sub("add", a, b, detail::Add{}, 1.0);
}

Variable sub(const Variable& a, const Variable& b) {
  return add_or_sub("sub", a, b, detail::Subtract{}, -1.0);
}

Variable multiply(const Variable& a, const Variable& b) {
  const auto x = detail::floats(a, "multiply");
  const auto y = detail::floats_like(b, x.tensor, "multiply");
  const bool da = x.variable.requires_grad(), db = y.variable.requires_grad();
  const auto backward = [left = detail::Saved(db ? x.tensor : Tensor{}),
                         right = detail::Saved(da ? y.tensor : Tensor{}), from = x.tensor.shape(),
                         to = y.tensor.shape(), da, db](const Tensor& dy) {
    std::vector<Tensor> out(2);
    if (da) out[0] = reduced(product(dy, right.get()), from);
    if (db) out[1] = reduced(product(dy, left.get()), to);
    return out;
  };
  return detail::record("multiply", product(x.tensor, y.tensor), {x.variable, y.variable}, backward);
}

Variable scale(const Variable& x, double factor) {
  return scale_as("scale", x, factor, detail::traced([&] { return Attributes{{"factor", factor}}; }));
}

Variable neg(const Variable& x) { return scale_as("neg", x, -1.0, {}); }

}  // namespace fq::ops
