#pragma once

/// A small tensor against larger operands.

#include <initializer_list>
#include <string_view>

#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/blocks/shape.h"
#include "fakequant/core/tape.h"

namespace fq::detail {

/// f32, or f64 as it is: what loops over elements take.
inline Tensor widened(const Tensor& x) { return x.to(x.dtype() == DType::f64 ? DType::f64 : DType::f32); }

/// x repeated to a shape that it broadcasts to by NumPy's rule. Floats.
inline Tensor repeated(const Tensor& x, const Shape& shape) {
  Tensor out = Tensor::empty(shape, widened(x).dtype(), x.device());
  if (out.numel() == 0 || x.device().is_meta()) return out.to(x.dtype());
  const Tensor one = Tensor::scalar(1, out.dtype()).to(x.device());
  run(x.device(), &Kernels::combine, widened(x), one, Multiply{}, out);
  return out.to(x.dtype());
}

/// The gradient of that: dy summed, in double, over what was repeated.
inline Tensor summed_to(const Tensor& dy, const Shape& shape) {
  Tensor out = Tensor::zeros(shape, widened(dy).dtype(), dy.device());
  if (dy.numel() > 0 && !dy.device().is_meta())
    run(dy.device(), &Kernels::reduce_to, widened(dy), Total{}, out);
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
                [from = x.shape()](const Tensor& dy) { return std::vector<Tensor>{summed_to(dy, from)}; });
}

}  // namespace fq::detail
