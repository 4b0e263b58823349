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
    // Shapes come from files: the product must not wrap.
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
    // From the last axis to the first: missing leading axes count as 1.
    const auto x = i < a.size() ? a[a.size() - 1 - i] : 1;
    const auto y = i < b.size() ? b[b.size() - 1 - i] : 1;
    FQ_CHECK(x == y || x == 1 || y == 1, function,
             "{} and {} do not broadcast: sizes must be equal or 1, counted from the last axis", to_string(a),
             to_string(b));
    // A size of 1 repeats, and also shrinks to 0 next to an empty axis.
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

// Axes that are not named keep `rest_` = whole. In `blocks` they have length 1 instead.
Granularity Granularity::per_axis(std::vector<int> axes) {
  Granularity out;
  std::ranges::sort(axes);
  for (const int axis : axes) out.lengths_.emplace_back(axis, 1);
  return out;
}

Granularity Granularity::blocks(const std::map<int, std::int64_t>& lengths) {
  Granularity out;
  out.rest_ = 1;
  for (const auto& [axis, length] : lengths) {
    FQ_CHECK(length == whole || length > 0, "granularity",
             "a block of {} elements on axis {}: use 1 or more, or -1", length, axis);
    out.lengths_.emplace_back(axis, length);
  }
  return out;
}

Granularity Granularity::per_group(std::int64_t length, int axis) { return blocks({{axis, length}}); }

Granularity Granularity::blocks_2d(std::int64_t rows, std::int64_t columns) {
  return blocks({{-2, rows}, {-1, columns}});
}

Shape Granularity::block_shape(const Shape& tensor) const {
  Shape block(tensor.size(), rest_);
  for (const auto& [axis, length] : lengths_)
    block[static_cast<std::size_t>(normalize_axis(axis, static_cast<int>(tensor.size()), "granularity"))] =
        length;
  for (std::size_t i = 0; i < block.size(); ++i)
    // At least 1, so that `scale_shape` does not divide by the size of an empty axis.
    if (block[i] == whole) block[i] = std::max<std::int64_t>(tensor[i], 1);
  return block;
}

Shape Granularity::scale_shape(const Shape& tensor) const {
  Shape out = block_shape(tensor);
  // ceil(size / block) without the overflow of size + block - 1.
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = tensor[i] == 0 ? 0 : (tensor[i] - 1) / out[i] + 1;
  return out;
}

int Granularity::single_axis(int rank) const {
  // Per one axis: blocks of 1 along it, and of the whole size along all others.
  if (lengths_.size() != 1 || rest_ != whole || lengths_[0].second != 1) return -1;
  return normalize_axis(lengths_[0].first, rank, "granularity");
}

std::string to_string(const Granularity& granularity) {
  if (granularity.is_per_tensor()) return "per tensor";
  std::vector<std::string> parts;
  for (const auto& [axis, length] : granularity.lengths_) {
    if (granularity.rest_ == Granularity::whole)
      parts.push_back(fmt::format("{}", axis));
    else if (length == Granularity::whole)
      parts.push_back(fmt::format("all of axis {}", axis));
    else
      parts.push_back(fmt::format("{} on axis {}", length, axis));
  }
  return fmt::format("{} {}", granularity.rest_ == 1 ? "in blocks of" : "per axis", fmt::join(parts, ", "));
}

}  // namespace fq
