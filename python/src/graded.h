#pragma once

/// Functions with a straight-through gradient: y alone or, where grad_y is given, (y, grad_x).

#include "array.h"
#include "fakequant/core/variable.h"

namespace fq::python {

inline constexpr const char* kGraded = "\n\nWith grad_y it gives (y, grad_x): the gradient of x beside.";

template <class F>
nb::object graded(const Call& call, nb::handle x, nb::handle grad_y, F f) {
  const Tensor input = call.tensor(x, "x"), seed = call.tensor(grad_y, "grad_y");
  if (!input.defined()) throw nb::type_error("x is None: give an array");
  Tensor y, grad_x;
  {
    const nb::gil_scoped_release free;
    const Variable leaf(input, seed.defined());
    const Variable out = f(leaf);
    y = out.tensor();
    if (seed.defined()) {
      out.backward(seed);
      grad_x = leaf.grad();
    }
  }
  if (!seed.defined()) return call.give(y);
  return nb::make_tuple(call.give(y), call.give(grad_x));
}

/// A result that takes no gradient, computed without the interpreter's lock.
template <class F>
auto unlocked(F f) {
  const nb::gil_scoped_release free;
  return f();
}

}  // namespace fq::python
