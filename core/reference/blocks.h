#pragma once

/// Which elements of a tensor share a scale, as runs of memory; not a public header.

#include <algorithm>
#include <vector>

#include "fakequant/core/shape.h"

namespace fq::detail {

/// `size` elements along an axis in `blocks` blocks of `length`, the last of which may be partial.
struct BlockAxis {
  std::int64_t size, length, blocks;
};

/// The axes of a tensor of shape `x`, those merged that allow it: runs of one block are as long as can be.
/// `block` has the rank of x and positive lengths. At least one axis; x has elements.
inline std::vector<BlockAxis> merged_axes(const Shape& x, const Shape& block) {
  std::vector<BlockAxis> axes;
  for (std::size_t a = 0; a < x.size(); ++a) {
    const std::int64_t length = std::min(block[a], x[a]);
    const BlockAxis next{x[a], length, (x[a] + length - 1) / length};
    const bool whole = next.blocks == 1, kept = length == 1 && !axes.empty() && axes.back().length == 1;
    if (axes.empty() || !(whole || kept)) {
      axes.push_back(next);
      continue;
    }
    axes.back().size *= next.size;
    axes.back().blocks *= kept ? next.blocks : 1;
    axes.back().length *= kept ? 1 : next.length;
  }
  if (axes.empty()) axes.push_back({1, 1, 1});
  return axes;
}

/// Calls f(begin, end, j, step) for runs of row-major elements [begin, end) of a tensor of shape `x`, in
/// order: element i of the run belongs to block j + (i - begin) * step, step being 0 or 1. Blocks are
/// numbered row-major; `block` as in `merged_axes`.
template <class F>
void for_block_runs(const Shape& x, const Shape& block, F&& f) {
  if (numel(x) == 0) return;
  const auto axes = merged_axes(x, block);
  const BlockAxis last = axes.back();
  const std::size_t outer = axes.size() - 1;
  std::vector<std::int64_t> index(axes.size());
  const std::int64_t count = numel(x);
  for (std::int64_t row = 0; row < count; row += last.size) {
    std::int64_t j = 0;
    for (std::size_t a = 0; a < outer; ++a) j = j * axes[a].blocks + index[a] / axes[a].length;
    j *= last.blocks;
    if (last.length == 1)
      f(row, row + last.size, j, std::int64_t{last.blocks > 1});
    else
      for (std::int64_t i = 0; i < last.size; i += last.length, ++j)
        f(row + i, row + std::min(i + last.length, last.size), j, std::int64_t{0});
    for (std::size_t a = outer; a-- > 0;) {
      if (++index[a] < axes[a].size) break;
      index[a] = 0;
    }
  }
}

}  // namespace fq::detail
