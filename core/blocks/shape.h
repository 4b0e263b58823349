#pragma once

/// Shapes: logical sizes along each axis, outermost first. A 4-D activation is always N, C, H, W.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fq {

/// Sizes along each axis; empty is rank 0, one element.
using Shape = std::vector<std::int64_t>;

/// How the elements of a dense tensor lie in memory. Shapes and axes never depend on it.
enum class Layout : unsigned char {
  row_major,      ///< the last axis is contiguous
  channels_last,  ///< 4-D only: N, H, W, C in memory
};

/// "row_major" or "channels_last".
[[nodiscard]] std::string_view name(Layout layout) noexcept;

/// Product of the sizes; 1 for a rank-0 shape. Throws ArgumentError on a negative size or past 2^63.
[[nodiscard]] std::int64_t numel(const Shape& shape);
/// "[64, 3, 28, 28]"
[[nodiscard]] std::string to_string(const Shape& shape);
/// `axis` counted from the front, negative ones from the back. Throws ArgumentError when out of range.
[[nodiscard]] int normalize_axis(int axis, int rank, std::string_view function);
/// The shape both broadcast to by NumPy's rule. Throws ArgumentError naming both.
[[nodiscard]] Shape broadcast_shapes(const Shape& a, const Shape& b, std::string_view function);

/// A shape seen around one axis: element (o, i, n) lies at (o * size + i) * inner + n in row-major order.
struct AxisView {
  std::int64_t outer, size, inner;
};
[[nodiscard]] AxisView axis_view(const Shape& shape, int axis);

}  // namespace fq
