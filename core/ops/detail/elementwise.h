#pragma once

/// Recording of elementwise functions, and reduction of their gradients.

#include <memory>
#include <optional>
#include <string_view>

#include "fakequant/core/numerics/detail/activations.h"
#include "fakequant/core/ops/detail/operator.h"

namespace fq::detail {

/// Returns f(a, b) with broadcasting, in the layout of the first input that has the shape of the result.
[[nodiscard]] Tensor combined(std::string_view op, const Tensor& a, const Tensor& b, const BinaryFunction& f);
/// Returns x broadcast to a shape and layout.
[[nodiscard]] Tensor spread(const Tensor& x, const Shape& shape, Layout layout);
/// Returns x * factor.
[[nodiscard]] Tensor scaled(const Tensor& x, double factor);
/// Sums a gradient over the axes along which its input, of the given shape, was broadcast.
[[nodiscard]] Tensor reduced(const Tensor& dy, const Shape& shape);

/// Applies f lazily to sums whose values have no other reader. Returns nullopt if this is not possible.
[[nodiscard]] std::optional<Variable> apply_to_sums(std::string_view op, const Variable& input,
                                                    const Activation& f);

/// Computes y = f(x) and records it under the name of the operator.
template <class F>
[[nodiscard]] Variable apply_function(std::string_view op, const Variable& input, F f,
                                      Attributes attributes = {}) {
  if (auto y = apply_to_sums(op, input, Activation{f})) return *y;
  const Floats x = floats(input, op);
  Tensor y = empty_like(x.tensor);
  run(y.device(), &Kernels::activate, x.tensor, Activation{f}, y);
  const SavedFloats saved(F::of_output ? Variable(y) : x.variable);
  const auto backward = [f, saved](BackwardCall& call) {
    call.dy.add_slope(std::make_shared<Activation>(f), saved.get());
    if constexpr (!slope_stays_pending<F>) call.dy.evaluate();
    return pass_gradient(call);
  };
  return record(op, y, {x.variable}, backward, std::move(attributes));
}

}  // namespace fq::detail
