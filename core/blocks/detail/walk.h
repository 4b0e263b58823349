#pragma once

/// Tensor axes in memory order.

#include <array>
#include <cstdint>
#include <vector>

#include "fakequant/core/blocks/shape.h"

namespace fq::detail {

/// Returns the values of the axes of a 4-D tensor in memory order, or `axes` itself for row-major tensors.
inline Shape memory_order(const Shape& axes, Layout layout) {
  if (layout == Layout::row_major) return axes;
  return {axes[0], axes[2], axes[3], axes[1]};
}

/// Splits a tensor in memory order around a logical axis: outer blocks of size * inner elements.
inline AxisView memory_view(const Shape& shape, Layout layout, int axis) {
  if (layout == Layout::row_major) return axis_view(shape, axis);
  constexpr int position[] = {0, 3, 1, 2};
  return axis_view(memory_order(shape, layout), position[axis]);
}

}  // namespace fq::detail

// Iteration over two dense tensors in the memory order of a third.

namespace fq::cpu {

/// Returns the distance in elements between neighbours along each logical axis.
[[nodiscard]] std::vector<std::int64_t> axis_strides(const Shape& shape, Layout layout);
/// As above, right-aligned to `out` by NumPy's rule, with 0 along broadcast axes.
[[nodiscard]] std::vector<std::int64_t> broadcast_strides(const Shape& shape, Layout layout,
                                                          const Shape& out);

/// Rows of `inner` elements. Adjacent axes are merged if every operand allows it.
class Walk {
 public:
  /// `strides` are the strides of both operands along the logical axes of `shape`, which has layout
  /// `layout`.
  Walk(const Shape& shape, Layout layout, std::array<std::vector<std::int64_t>, 2> strides);

  /// Sizes of the merged axes, outermost first; at least one.
  [[nodiscard]] const Shape& sizes() const noexcept { return dims_; }
  [[nodiscard]] const std::vector<std::int64_t>& strides(std::size_t operand) const noexcept {
    return strides_[operand];
  }
  [[nodiscard]] std::int64_t rows() const noexcept { return rows_; }
  [[nodiscard]] std::int64_t inner() const noexcept { return dims_.back(); }
  [[nodiscard]] std::int64_t step(std::size_t operand) const noexcept { return strides_[operand].back(); }
  /// Number of elements after which the operand's offsets repeat.
  [[nodiscard]] std::int64_t period(std::size_t operand) const noexcept;
  /// Returns the offset of the operand's first element in a row.
  [[nodiscard]] std::int64_t offset(std::size_t operand, std::int64_t row) const noexcept {
    std::int64_t at = 0;
    for (std::size_t axis = dims_.size() - 1; axis-- > 0; row /= dims_[axis])
      at += row % dims_[axis] * strides_[operand][axis];
    return at;
  }

 private:
  Shape dims_;
  std::array<std::vector<std::int64_t>, 2> strides_;
  std::int64_t rows_ = 1;
};

/// Shape and layout of a dense tensor.
struct Placed {
  const Shape& shape;
  Layout layout;
};
template <class Tensor>
[[nodiscard]] Placed placed(const Tensor& tensor) {
  return {tensor.shape(), tensor.layout()};
}
/// Iterates over y, with the elements of a and b that broadcast to each element of y.
[[nodiscard]] Walk broadcast_walk(const Placed& a, const Placed& b, const Placed& y);
/// Iterates over x. The first operand is the element of `out` (row-major) that accumulates each x; the
/// second is x.
[[nodiscard]] Walk sum_walk(const Placed& x, const Shape& out);
/// Iterates over y (row-major), whose axis i is axis axes[i] of x. The first operand is x.
[[nodiscard]] Walk permute_walk(const Placed& x, const std::vector<int>& axes, const Shape& y);

}  // namespace fq::cpu
