#pragma once

/// Tensors whose elements are moved: gathered, mixed and joined along axes.

#include <bit>
#include <cstdint>
#include <vector>

#include "fakequant/core/accumulator.h"
#include "fakequant/core/dtype.h"
#include "fakequant/core/tensor.h"

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

namespace fq::detail {

/// Concatenation along a logical axis; the layout is that of the first part. Types of 8 bits and more, and
/// u1.
[[nodiscard]] Tensor join(const std::vector<Tensor>& parts, int axis);
/// Elements [begin, end) along a logical axis, as a new tensor in the same layout. Types of 8 bits and more,
/// u1.
[[nodiscard]] Tensor cut(const Tensor& x, int axis, std::int64_t begin, std::int64_t end);

// Fill values as unsigned integers of the width of an element.

/// Calls `f` with the word that `value` is in f32 and f64; with 0 of other types, of 8, 16, 32 or 64 bits.
template <class F>
void visit_fill_word(DType dtype, double value, F&& f) {
  if (dtype == DType::f32) return f(std::bit_cast<std::uint32_t>(static_cast<float>(value)));
  if (dtype == DType::f64) return f(std::bit_cast<std::uint64_t>(value));
  switch (bit_width(dtype)) {
    case 8:
      return f(std::uint8_t{0});
    case 16:
      return f(std::uint16_t{0});
    case 32:
      return f(std::uint32_t{0});
    default:
      return f(std::uint64_t{0});
  }
}

}  // namespace fq::detail
