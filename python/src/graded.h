#pragma once

/// Functions with a straight-through gradient. They return y, or (y, grad_x) if grad_y is given.

#include <algorithm>
#include <type_traits>

#include "array.h"
#include "fakequant/core/backend/foreign_stream.h"
#include "fakequant/core/error.h"
#include "fakequant/core/tape.h"
#include "fakequant/core/variable.h"
#include "interpreter_lock.h"
#include "warnings.h"

namespace fq::python {

inline constexpr const char* kGraded =
    "\n\nWith grad_y it returns (y, grad_x), where grad_x is the gradient of x. With grad_y=True it returns "
    "(y, backward), and backward(grad_y) returns grad_x.";

/// Returns the result of `f`, computed without the interpreter's lock. Then reports the warnings of the
/// library.
template <class F>
auto unlocked(F f) {
  const CallWarnings warnings;
  const auto alone = [&] {
    const fq::detail::KeptDevice kept;
    const Unlocked free;
    return f();
  };
  if constexpr (std::is_void_v<decltype(f())>) {
    alone();
    CallWarnings::tell();
  } else {
    auto result = alone();
    CallWarnings::tell();
    return result;
  }
}

/// Backward pass of a function that is a chain of operators. It can run several times. It keeps the tensors
/// that the backward functions of the operators read, and not x itself.
class WayBack {
 public:
  explicit WayBack(const Variable& y) : last_(y.node()->gradient) {}

  [[nodiscard]] Tensor operator()(const Tensor& grad_y) const {
    const NoGrad quiet;
    if (grad_y.shape() != last_->shape)
      throw ArgumentError("[backward] grad_y is " + grad_y.describe() + ", the value " +
                          to_string(last_->shape));
    Tensor gradient = grad_y;
    for (const detail::Gradient* at = last_.get(); !at->op.empty();) {
      const auto input = std::ranges::find_if(at->inputs, [](const auto& one) { return one != nullptr; });
      const auto parts = detail::input_gradients(*at, gradient);
      gradient = parts.at(static_cast<std::size_t>(input - at->inputs.begin()));
      at = input->get();
    }
    return gradient;
  }

 private:
  std::shared_ptr<detail::Gradient> last_;
};

template <class F>
nb::object recorded(const Call& call, const Tensor& x, F f) {
  const Variable y = unlocked([&] { return f(Variable(x, true)); });
  return nb::make_tuple(call.give(y.tensor()), WayBack(y));
}

template <class F>
nb::object graded(const Call& call, nb::handle x, nb::handle grad_y, F f) {
  const Tensor input = call.tensor(x, "x");
  if (!input.defined()) throw nb::type_error("x is None: use an array");
  if (grad_y.ptr() == Py_True) return recorded(call, input, f);
  const Tensor seed = call.tensor(grad_y, "grad_y");
  Tensor grad_x;
  const Tensor y = unlocked([&] {
    const Variable leaf(input, seed.defined());
    const Variable out = f(leaf);
    if (seed.defined()) {
      out.backward(seed);
      grad_x = leaf.grad();
    }
    return out.tensor();
  });
  if (!seed.defined()) return call.give(y);
  return nb::make_tuple(call.give(y), call.give(grad_x));
}

}  // namespace fq::python
