#include "fakequant/core/blocks/shape.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "fakequant/core/detail/check.h"

namespace fq {

std::string_view name(Layout layout) noexcept {
  return layout == Layout::row_major ? "row_major" : "channels_last";
}

std::int64_t numel(const Shape& shape) {
  std::int64_t product = 1;
  for (const auto size : shape) {
    FQ_CHECK(size >= 0, "shape", "{} has a negative size: sizes are 0 or more", to_string(shape));
    FQ_CHECK(!__builtin_mul_overflow(product, size, &product), "shape", "{} has more than 2^63 elements",
             to_string(shape));
  }
  return product;
}

std::string to_string(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

int normalize_axis(int axis, int rank, std::string_view function) {
  FQ_CHECK(rank > 0, function, "axis {} of a rank of 0: it has one element and no axes", axis);
  FQ_CHECK(axis >= -rank && axis < rank, function, "axis {} is out of range for rank {}: use {} to {}", axis,
           rank, -rank, rank - 1);
  return axis < 0 ? axis + rank : axis;
}

Shape broadcast_shapes(const Shape& a, const Shape& b, std::string_view function) {
  Shape out(std::max(a.size(), b.size()), 1);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto x = i < a.size() ? a[a.size() - 1 - i] : 1;
    const auto y = i < b.size() ? b[b.size() - 1 - i] : 1;
    FQ_CHECK(x == y || x == 1 || y == 1, function,
             "{} and {} do not broadcast: sizes must be equal or 1, counted from the last axis", to_string(a),
             to_string(b));
    out[out.size() - 1 - i] = x == 1 ? y : x;
  }
  return out;
}

AxisView axis_view(const Shape& shape, int axis) {
  AxisView view{1, shape[static_cast<std::size_t>(axis)], 1};
  for (int i = 0; i < static_cast<int>(shape.size()); ++i) {
    if (i < axis) view.outer *= shape[static_cast<std::size_t>(i)];
    if (i > axis) view.inner *= shape[static_cast<std::size_t>(i)];
  }
  return view;
}

}  // namespace fq
