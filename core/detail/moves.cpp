#include "fakequant/core/detail/moves.h"

#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/detail/join.h"

namespace fq {
namespace {

std::size_t axis_index(int axis) { return static_cast<std::size_t>(axis); }

Tensor reshaped(const Tensor& x, const Shape& shape) { return x.to(Layout::row_major).reshape(shape); }

Tensor permuted(const Tensor& x, const PermuteMove& move) {
  Tensor y = Tensor::empty(moved_shape(x.shape(), move), x.dtype(), x.device());
  detail::run(y.device(), &detail::Kernels::permute, x, move.axes, y);
  return y;
}

PermuteMove inverse(const PermuteMove& move) {
  PermuteMove out{std::vector<int>(move.axes.size())};
  for (std::size_t i = 0; i < move.axes.size(); ++i) out.axes[axis_index(move.axes[i])] = static_cast<int>(i);
  return out;
}

/// Zeros of that shape with dy where it was cut out.
Tensor padded(const Tensor& dy, const CutMove& move, const Shape& shape) {
  const auto zeros = [&](std::int64_t size) {
    Shape side = shape;
    side[axis_index(move.axis)] = size;
    return Tensor::zeros(side, dy.dtype(), dy.device(), dy.layout());
  };
  return detail::join({zeros(move.begin), dy, zeros(shape[axis_index(move.axis)] - move.end)}, move.axis);
}

struct ShapeOf {
  Shape shape;

  Shape operator()(const ReshapeMove& move) const { return move.shape; }
  Shape operator()(const PermuteMove& move) const {
    Shape out;
    for (const int axis : move.axes) out.push_back(shape[axis_index(axis)]);
    return out;
  }
  Shape operator()(const CutMove& move) const {
    Shape out = shape;
    out[axis_index(move.axis)] = move.end - move.begin;
    return out;
  }
};

struct Moved {
  const Tensor& x;

  Tensor operator()(const ReshapeMove& move) const { return reshaped(x, move.shape); }
  Tensor operator()(const PermuteMove& move) const { return permuted(x, move); }
  Tensor operator()(const CutMove& move) const { return detail::cut(x, move.axis, move.begin, move.end); }
};

struct MovedBack {
  const Tensor& dy;
  const Shape& shape;

  Tensor operator()(const ReshapeMove&) const { return reshaped(dy, shape); }
  Tensor operator()(const PermuteMove& move) const { return permuted(dy, inverse(move)); }
  Tensor operator()(const CutMove& move) const { return padded(dy, move, shape); }
};

}  // namespace

Shape moved_shape(const Shape& shape, const Move& move) { return std::visit(ShapeOf{shape}, move); }
Layout moved_layout(Layout layout, const Move& move) {
  return std::holds_alternative<CutMove>(move) ? layout : Layout::row_major;
}
Tensor moved(const Tensor& x, const Move& move) { return std::visit(Moved{x}, move); }
Tensor moved_back(const Tensor& dy, const Move& move, const Shape& shape) {
  return std::visit(MovedBack{dy, shape}, move);
}

}  // namespace fq
