#pragma once

/// Logical axes as they lie in memory.

#include "fakequant/core/blocks/shape.h"

namespace fq::detail {

/// Numbers of the axes of a 4-D tensor, in memory order; those of a row-major one as they are.
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
