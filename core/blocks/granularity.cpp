#include "fakequant/core/blocks/granularity.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "fakequant/core/detail/check.h"

namespace fq {

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
    if (block[i] == whole) block[i] = std::max<std::int64_t>(tensor[i], 1);
  return block;
}

Shape Granularity::scale_shape(const Shape& tensor) const {
  Shape out = block_shape(tensor);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = tensor[i] == 0 ? 0 : (tensor[i] - 1) / out[i] + 1;
  return out;
}

int Granularity::single_axis(int rank) const {
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
