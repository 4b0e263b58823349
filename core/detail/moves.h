#pragma once

/// What a Move (core/accumulator.h) makes of shapes, layouts, tensors and gradients.

#include "fakequant/core/accumulator.h"

namespace fq {

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
