#pragma once

/// A logical axis as it lies in memory; not a public header.

#include "fakequant/core/shape.h"

namespace fq::detail {

/// Outer blocks of size * inner elements in memory order around a logical axis.
inline AxisView memory_view(const Shape& shape, Layout layout, int axis) {
  if (layout == Layout::row_major) return axis_view(shape, axis);
  constexpr int position[] = {0, 3, 1, 2};
  return axis_view({shape[0], shape[2], shape[3], shape[1]}, position[axis]);
}

}  // namespace fq::detail
