#pragma once

/// Rearranges elements of tensors: gathers, mixes and concatenates along axes.

#include <bit>
#include <cstdint>
#include <vector>

#include "fakequant/core/accumulator.h"
#include "fakequant/core/dtype.h"
#include "fakequant/core/tensor.h"

namespace fq {

/// Return shape and layout of the result of a move. The move must fit the shape.
[[nodiscard]] Shape moved_shape(const Shape& shape, const Move& move);
[[nodiscard]] Layout moved_layout(Layout layout, const Move& move);
/// Applies a move to floats, codes of at least 8 bits, or a mask. Returns a new tensor, except for the
/// reshape of a row-major tensor, which is a view.
[[nodiscard]] Tensor moved(const Tensor& x, const Move& move);
/// Returns the gradient of the input, of the given shape, from the gradient of the moved result. Elements
/// return to their original position; elements that were cut off get zeros.
[[nodiscard]] Tensor moved_back(const Tensor& dy, const Move& move, const Shape& shape);

}  // namespace fq

namespace fq::detail {

/// Concatenates along a logical axis, in the layout of the first part. For types of at least 8 bits, and u1.
[[nodiscard]] Tensor join(const std::vector<Tensor>& parts, int axis);
/// Returns elements [begin, end) along a logical axis as a new tensor in the same layout. For types of at
/// least 8 bits, and u1.
[[nodiscard]] Tensor cut(const Tensor& x, int axis, std::int64_t begin, std::int64_t end);

/// Returns views of rows along axis 0, with rows[i] rows each, in order. They share the storage of x.
[[nodiscard]] std::vector<Tensor> split_rows(const Tensor& x, const std::vector<std::int64_t>& rows);
/// Returns the rows of all parts along axis 0 as one tensor, without a copy, if the parts follow each other
/// in one storage. Returns an undefined tensor otherwise, and if the parts differ in dtype or on another
/// axis.
[[nodiscard]] Tensor adjacent_rows(const std::vector<Tensor>& parts);

// Fill values as unsigned integers of the width of an element.

/// Calls `f` with the bits of `value` for f32 and f64, and with 0 for other types of 8, 16, 32 or 64 bits.
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
