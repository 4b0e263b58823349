#pragma once

/// Loops of one tensor against a smaller one.

#include <initializer_list>
#include <string_view>

#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/blocks/shape.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/tape.h"

namespace fq::detail {

/// Throws ArgumentError unless `other` broadcasts against a tensor of shape `x` by NumPy's rule.
inline void check_broadcast(const Shape& x, const Shape& other, std::string_view function) {
  FQ_CHECK(other.size() <= x.size(), function, "{} has more axes than the input {}", to_string(other),
           to_string(x));
  for (std::size_t k = 0, a = x.size() - other.size(); k < other.size(); ++k, ++a)
    FQ_CHECK(other[k] == 1 || other[k] == x[a], function,
             "{} does not broadcast to the input {}: axis {} must have 1 or {}", to_string(other),
             to_string(x), a, x[a]);
}

/// Calls f(begin, end, j): the row-major elements [begin, end) of a tensor of shape `x` meet element j of one
/// of shape `other`, which broadcasts against it by NumPy's rule. Throws ArgumentError when it does not.
template <class F>
void visit_broadcast(const Shape& x, const Shape& other, std::string_view function, F&& f) {
  check_broadcast(x, other, function);
  Shape stride(x.size()), index(x.size());
  std::int64_t step = 1;
  for (std::size_t a = x.size(), k = other.size(); k-- > 0;) {
    --a;
    stride[a] = other[k] == 1 ? 0 : step;
    step *= other[k];
  }
  std::size_t outer = x.size();
  std::int64_t inner = 1;
  while (outer > 0 && stride[outer - 1] == 0) inner *= x[--outer];
  const std::int64_t count = numel(x);
  for (std::int64_t i = 0, j = 0; i < count; i += inner) {
    f(i, i + inner, j);
    for (std::size_t a = outer; a-- > 0;) {
      j += stride[a];
      if (++index[a] < x[a]) break;
      j -= stride[a] * x[a];
      index[a] = 0;
    }
  }
}

// Broadcasts of a small tensor to larger operands.

/// Converts to f32, the type of loops over elements; f64 is not changed.
inline Tensor widened(const Tensor& x) { return x.to(x.dtype() == DType::f64 ? DType::f64 : DType::f32); }

/// x repeated to a shape that it broadcasts to by NumPy's rule. Floats.
inline Tensor repeated(const Tensor& x, const Shape& shape) {
  Tensor out = Tensor::empty(shape, widened(x).dtype(), x.device());
  if (out.numel() == 0 || x.device().is_meta()) return out.to(x.dtype());
  const Tensor one = Tensor::scalar(1, out.dtype()).to(x.device());
  run(x.device(), &Kernels::combine, widened(x), one, Multiply{}, out);
  return out.to(x.dtype());
}

/// The gradient of `repeated`: dy summed, in double, over repeated elements.
inline Tensor sum_to_shape(const Tensor& dy, const Shape& shape) {
  Tensor out = Tensor::zeros(shape, widened(dy).dtype(), dy.device());
  if (dy.numel() > 0 && !dy.device().is_meta())
    run(dy.device(), &Kernels::reduce_axes, widened(dy), Total{}, out);
  return out.to(dy.dtype());
}

/// The shape that one and the others broadcast to. Throws ArgumentError where they do not.
inline Shape common_shape(Shape shape, std::initializer_list<Shape> others, std::string_view function) {
  for (const Shape& other : others) shape = broadcast_shapes(shape, other, function);
  return shape;
}

/// x repeated where one of the other shapes has more axes or elements; x itself where none has.
inline Tensor broadcast_up(const Tensor& x, std::initializer_list<Shape> others, std::string_view function) {
  const Shape shape = common_shape(x.shape(), others, function);
  return shape == x.shape() ? x : repeated(x, shape);
}
inline Variable broadcast_up(const Variable& x, std::initializer_list<Shape> others,
                             std::string_view function) {
  const Shape shape = common_shape(x.shape(), others, function);
  if (shape == x.shape()) return x;
  return record("broadcast", repeated(x.tensor(), shape), {x},
                [from = x.shape()](const Tensor& dy) { return std::vector<Tensor>{sum_to_shape(dy, from)}; });
}

}  // namespace fq::detail
