#pragma once

/// Logical axes as they lie in memory.

#include <array>
#include <cstdint>
#include <vector>

#include "fakequant/core/blocks/shape.h"

namespace fq::detail {

/// Returns the values of the axes of a 4-D tensor in memory order, or `axes` itself for row-major tensors.
inline Shape in_memory(const Shape& axes, Layout layout) {
  if (layout == Layout::row_major) return axes;
  return {axes[0], axes[2], axes[3], axes[1]};
}

/// Outer blocks of size * inner elements in memory order around a logical axis.
inline AxisView memory_view(const Shape& shape, Layout layout, int axis) {
  if (layout == Layout::row_major) return axis_view(shape, axis);
  constexpr int position[] = {0, 3, 1, 2};
  return axis_view(in_memory(shape, layout), position[axis]);
}

}  // namespace fq::detail

// Iteration over two dense tensors in the memory order of a third.

namespace fq::cpu {

/// Elements between neighbours along each logical axis.
[[nodiscard]] std::vector<std::int64_t> strides_of(const Shape& shape, Layout layout);
/// As above, right-aligned to `out` by NumPy's rule: 0 along axes that are broadcast.
[[nodiscard]] std::vector<std::int64_t> broadcast_strides(const Shape& shape, Layout layout,
                                                          const Shape& out);

/// Rows of `inner` elements; axes that no operand needs apart are merged.
class Walk {
 public:
  /// `strides`: of both operands along the logical axes of `shape`, which lies in memory as `layout`.
  Walk(const Shape& shape, Layout layout, std::array<std::vector<std::int64_t>, 2> strides);

  /// Sizes of the merged axes, outermost first; at least one.
  [[nodiscard]] const Shape& sizes() const noexcept { return dims_; }
  [[nodiscard]] const std::vector<std::int64_t>& strides(std::size_t operand) const noexcept {
    return strides_[operand];
  }
  [[nodiscard]] std::int64_t rows() const noexcept { return rows_; }
  [[nodiscard]] std::int64_t inner() const noexcept { return dims_.back(); }
  [[nodiscard]] std::int64_t step(std::size_t operand) const noexcept { return strides_[operand].back(); }
  /// Elements after which the operand's offsets repeat.
  [[nodiscard]] std::int64_t period(std::size_t operand) const noexcept;
  /// Where the operand's elements of a row begin.
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

/// A dense tensor as a walk sees it.
struct Placed {
  const Shape& shape;
  Layout layout;
};
template <class Tensor>
[[nodiscard]] Placed placed(const Tensor& tensor) {
  return {tensor.shape(), tensor.layout()};
}
/// Of the elements of a and b that are combined to each of y.
[[nodiscard]] Walk broadcast_walk(const Placed& a, const Placed& b, const Placed& y);
/// Of x, its first operand the element of `out`, row-major, that each is added to; its second x itself.
[[nodiscard]] Walk sum_walk(const Placed& x, const Shape& out);
/// Of y, row-major, whose axis i is x's axis axes[i]; its first operand is x.
[[nodiscard]] Walk permute_walk(const Placed& x, const std::vector<int>& axes, const Shape& y);

}  // namespace fq::cpu
