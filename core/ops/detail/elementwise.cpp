#include "fakequant/core/ops/detail/elementwise.h"

#include "fakequant/core/backend/cpu/elementwise/activations.h"
#include "fakequant/core/ops/detail/deferred_operators.h"

namespace fq::detail {
namespace {

// Returns the layout of the operand that has the shape of the result, so that the usual case needs no copy.
Layout result_layout(const Tensor& a, const Tensor& b, const Shape& shape) {
  if (shape.size() != 4) return Layout::row_major;
  if (a.shape() == shape) return a.layout();
  if (b.shape() == shape) return b.layout();
  return a.layout() == Layout::channels_last ? a.layout() : b.layout();
}

}  // namespace

Tensor combined(std::string_view op, const Tensor& a, const Tensor& b, const BinaryFunction& f) {
  const Shape shape = broadcast_shapes(a.shape(), b.shape(), op);
  Tensor y = Tensor::empty(shape, a.dtype(), a.device(), result_layout(a, b, shape));
  run(y.device(), &Kernels::combine, a, b, f, y);
  return y;
}

Tensor spread(const Tensor& x, const Shape& shape, Layout layout) {
  // Avoids a copy, the usual case.
  if (x.shape() == shape && x.layout() == layout) return x;
  const Tensor one = Tensor::full({}, 1.0, x.dtype(), x.device());
  Tensor y = Tensor::empty(shape, x.dtype(), x.device(), layout);
  run(y.device(), &Kernels::combine, x, one, Multiply{}, y);
  return y;
}

Tensor scaled(const Tensor& x, double factor) {
  Tensor y = empty_like(x);
  run(y.device(), &Kernels::scale, x, factor, y);
  return y;
}

Tensor reduced(const Tensor& dy, const Shape& shape) {
  if (dy.shape() == shape) return dy;
  Tensor dx = Tensor::empty(shape, dy.dtype(), dy.device());
  run(dx.device(), &Kernels::reduce_axes, dy, Total{}, dx);
  return dx;
}

std::optional<Variable> apply_to_sums(std::string_view op, const Variable& input, const Activation& f) {
  if (auto y = deferred_activation(op, input, f)) return y;
  const Accumulator* sums = input.defined() ? input.accumulator() : nullptr;
  // A trace needs the values of the sums. The kernel exists only for row-major sums on the CPU.
  if (sums == nullptr || recorder() != nullptr || !input.device().is_cpu() ||
      input.layout() != Layout::row_major || !cpu::activates_sums(*sums, f))
    return {};
  const Again again = recompute_function(input);
  // The sums are not kept: backward must be able to recompute them.
  if (needs_grad({input}) && !again) return {};
  Tensor y = Tensor::empty(input.shape(), DType::f32, input.device());
  cpu::activate(*sums, f, y);
  return record(op, y, {input}, [f, again](const Tensor& dy) {
    Tensor dx = gradient_buffer(dy);
    cpu::activate_backward(dy, std::get<Accumulator>(again()), f, dx);
    return std::vector<Tensor>{dx};
  });
}

}  // namespace fq::detail
