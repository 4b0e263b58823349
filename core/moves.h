#pragma once

/// Moves: where the elements of a tensor go when nothing is computed.

#include <cstdint>
#include <variant>
#include <vector>

#include "fakequant/core/tensor.h"

namespace fq {

/// The same elements in logical row-major order in another shape of as many; row-major.
struct ReshapeMove {
  Shape shape;
};

/// The result's axis i is the tensor's axis axes[i], each named once from the front; row-major.
struct PermuteMove {
  std::vector<int> axes;
};

/// Elements [begin, end) along an axis counted from the front, in the tensor's layout.
struct CutMove {
  int axis = 0;
  std::int64_t begin = 0, end = 0;
};

using Move = std::variant<ReshapeMove, PermuteMove, CutMove>;

/// The shape and the layout of what the move makes of a tensor. The move must fit the shape.
[[nodiscard]] Shape moved_shape(const Shape& shape, const Move& move);
[[nodiscard]] Layout moved_layout(Layout layout, const Move& move);
/// Floats, codes of 8 bits and more, or a mask, moved: a new tensor, but for the reshape of a row-major one,
/// which is a view.
[[nodiscard]] Tensor moved(const Tensor& x, const Move& move);
/// The gradient of a tensor of that shape from the gradient of what the move made of it: elements go back to
/// where they came from, those that were cut off get zeros.
[[nodiscard]] Tensor moved_back(const Tensor& dy, const Move& move, const Shape& shape);

}  // namespace fq
