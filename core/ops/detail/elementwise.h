#pragma once

/// Elementwise functions as operators record them, and the sums of their gradients.

#include <optional>
#include <string_view>

#include "fakequant/core/numerics/detail/activations.h"
#include "fakequant/core/ops/detail/operator.h"

namespace fq::detail {

/// f(a, b), broadcast; in the layout of the first of them that has the result's shape.
[[nodiscard]] Tensor combined(std::string_view op, const Tensor& a, const Tensor& b, const BinaryFunction& f);
/// x, broadcast to a shape and layout.
[[nodiscard]] Tensor spread(const Tensor& x, const Shape& shape, Layout layout);
/// x * factor.
[[nodiscard]] Tensor scaled(const Tensor& x, double factor);
/// A gradient summed over the axes along which its input, of that shape, was broadcast.
[[nodiscard]] Tensor reduced(const Tensor& dy, const Shape& shape);

/// f of sums whose values nobody else has, read as they are needed; none where that is not to be had.
[[nodiscard]] std::optional<Variable> apply_to_sums(std::string_view op, const Variable& input,
                                                    const Activation& f);

/// y = f(x), recorded under the operator's name.
template <class F>
[[nodiscard]] Variable apply_function(std::string_view op, const Variable& input, F f,
                                      Attributes attributes = {}) {
  if (auto y = apply_to_sums(op, input, Activation{f})) return *y;
  const Floats x = floats(input, op);
  Tensor y = empty_like(x.tensor);
  run(y.device(), &Kernels::activate, x.tensor, Activation{f}, y);
  const SavedFloats saved(F::of_output ? Variable(y) : x.variable);
  const auto backward = [f, saved](const Tensor& dy) {
    Tensor dx = gradient_like(dy);
    run(dx.device(), &Kernels::activate_backward, dy, saved.get(), Activation{f}, dx);
    return std::vector<Tensor>{dx};
  };
  return record(op, y, {x.variable}, backward, std::move(attributes));
}

}  // namespace fq::detail
