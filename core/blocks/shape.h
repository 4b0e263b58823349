#pragma once

/// Shapes: logical sizes along each axis, outermost first. A 4-D activation is always N, C, H, W, whatever
/// its layout in memory.
///
///     const Shape image{1, 3, 32, 32};
///     const std::int64_t elements = numel(image);          // 3072
///     const int last = normalize_axis(-1, 4, "my_op");     // 3

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fq {

/// Sizes along each axis, none negative; an empty list is rank 0, which has one element. A size of 0 is
/// allowed: such a tensor has no elements.
using Shape = std::vector<std::int64_t>;

/// How the elements of a dense tensor lie in memory. Shapes and axes never depend on it.
enum class Layout : unsigned char {
  row_major,      ///< the last axis is contiguous
  channels_last,  ///< 4-D only: N, H, W, C in memory
};

/// "row_major" or "channels_last".
[[nodiscard]] std::string_view name(Layout layout) noexcept;

/// The product of the sizes; 1 for a shape of rank 0. Throws ArgumentError on a negative size and past 2^63.
[[nodiscard]] std::int64_t numel(const Shape& shape);
/// "[64, 3, 28, 28]", as messages print it.
[[nodiscard]] std::string to_string(const Shape& shape);
/// `axis` counted from the front, where negative ones count from the back. Throws ArgumentError in the name
/// of `function` when it is out of range.
[[nodiscard]] int normalize_axis(int axis, int rank, std::string_view function);
/// The shape that both broadcast to by NumPy's rule: aligned at the last axis, where a size of 1 or a missing
/// axis repeats. Throws ArgumentError in the name of `function`, naming both, when two sizes differ and
/// neither is 1.
[[nodiscard]] Shape broadcast_shapes(const Shape& a, const Shape& b, std::string_view function);

/// A shape seen around one axis: element (o, i, n) lies at (o * size + i) * inner + n in row-major order, so
/// that loops over an axis need no strides.
struct AxisView {
  std::int64_t outer, size, inner;
};
/// The view around `axis`, which counts from the front.
[[nodiscard]] AxisView axis_view(const Shape& shape, int axis);

}  // namespace fq
