#pragma once

/// BlockMap: maps each element of a tensor to its block. Holds plain numbers only, so that host loops,
/// vector loops and GPU kernels share it. Created from a shape and the block shape of a Granularity.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>
#include <vector>

#include "fakequant/core/blocks/detail/walk.h"
#include "fakequant/core/blocks/shape.h"
#include "fakequant/core/error.h"
#include "fakequant/core/numerics/number_formats.h"

namespace fq::detail {

/// Returns a / b for non-negative numbers. Divides in 32 bits if both fit, which is several times as fast.
FQ_HD std::int64_t quotient(std::int64_t a, std::int64_t b) {
  if (((a | b) >> 32) == 0) return static_cast<std::uint32_t>(a) / static_cast<std::uint32_t>(b);
  return a / b;
}

/// Blocks along one axis: `size` elements in `blocks` blocks of `length`; the last block may be partial.
struct BlockAxis {
  std::int64_t size, length, blocks;
};

/// Returns the axes of a tensor of shape `x`, merged where possible so that runs of one block are as long as
/// possible. `block` has the rank of x and positive lengths. Returns at least one axis; x must have
/// elements.
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

/// Elements in memory order as rows of `size` elements. Each row has `blocks` blocks of `length`; the last
/// block may be partial. Channels and whole tensors are also represented this way.
struct AxisBlocks {
  std::int64_t size, length, blocks;

  /// Position of an element: `at` in its row, in block `index`.
  struct Place {
    std::int64_t at, index;
  };

  /// Returns one block per index of the axis, or one block in total for axis -1. The shape must have
  /// elements.
  [[nodiscard]] static AxisBlocks of(const Shape& shape, Layout layout, int axis) {
    if (axis < 0) return {numel(shape), numel(shape), 1};
    const AxisView view = memory_view(shape, layout, axis);
    return {view.size * view.inner, view.inner, view.size};
  }
  /// Returns blocks for numbers that repeat along the innermost elements.
  [[nodiscard]] static AxisBlocks repeating(std::int64_t count, std::int64_t numbers) {
    return numbers == 1 ? AxisBlocks{count, count, 1} : AxisBlocks{numbers, 1, numbers};
  }

  [[nodiscard]] FQ_HD Place place(std::int64_t i) const {
    if (blocks == 1) return {0, 0};
    return row_place(i - quotient(i, size) * size);
  }
  [[nodiscard]] FQ_HD Place row_place(std::int64_t at) const {
    return {at, length == 1 ? at : quotient(at, length)};
  }
};

/// Index of an element's number. With mask 0, each group of 1 << shift consecutive elements shares one
/// number. Otherwise each group has mask + 1 numbers, which repeat within the group.
struct NumberIndex {
  int shift, wide;
  std::int64_t mask;

  [[nodiscard]] std::int64_t at(std::int64_t i) const { return ((i >> shift) << wide) + (i & mask); }
  [[nodiscard]] bool shared() const { return mask == 0; }
};

/// Blocks of any shape over elements in memory order. Blocks are numbered row-major over the axes in memory
/// order.
struct BlockMap {
  static constexpr int most_axes = 12;
  BlockAxis outer[most_axes];
  int outer_axes = 0;
  AxisBlocks last;

  /// Position of an element: row `row` of the last axis, whose first block is `base`.
  struct Place {
    std::int64_t row, base;
    AxisBlocks::Place row_place;
  };

  /// Creates the map. The shape must have elements and block lengths must not be 0. Both shapes are logical.
  [[nodiscard]] static BlockMap of(const Shape& shape, const Shape& block,
                                   Layout layout = Layout::row_major) {
    const auto axes = merged_axes(memory_order(shape, layout), memory_order(block, layout));
    BlockMap out;
    out.outer_axes = static_cast<int>(axes.size()) - 1;
    if (out.outer_axes > most_axes)
      throw ArgumentError("[blocks] blocks along more than 13 axes lie apart: reshape the tensor first");
    std::copy_n(axes.begin(), out.outer_axes, out.outer);
    out.last = {axes.back().size, axes.back().length, axes.back().blocks};
    return out;
  }

  [[nodiscard]] FQ_HD Place place(std::int64_t i) const {
    const std::int64_t row = quotient(i, last.size);
    return {row, first_block(row), last.row_place(i - row * last.size)};
  }
  [[nodiscard]] FQ_HD std::int64_t first_block(std::int64_t row) const {
    std::int64_t block = 0, step = last.blocks;
    for (int a = outer_axes; a-- > 0;) {
      const std::int64_t above = quotient(row, outer[a].size), index = row - above * outer[a].size;
      block += quotient(index, outer[a].length) * step;
      step *= outer[a].blocks;
      row = above;
    }
    return block;
  }
  [[nodiscard]] FQ_HD std::int64_t block_index(std::int64_t i) const {
    const Place found = place(i);
    return found.base + found.row_place.index;
  }

  /// Returns the outer axis `a`, or the last axis for a == outer_axes.
  [[nodiscard]] FQ_HD BlockAxis axis(int a) const {
    return a == outer_axes ? BlockAxis{last.size, last.length, last.blocks} : outer[a];
  }
  [[nodiscard]] std::int64_t blocks() const {
    std::int64_t out = last.blocks;
    for (int a = 0; a < outer_axes; ++a) out *= outer[a].blocks;
    return out;
  }
  /// Number of elements in a full block.
  [[nodiscard]] FQ_HD std::int64_t length() const {
    std::int64_t out = last.length;
    for (int a = 0; a < outer_axes; ++a) out *= outer[a].length;
    return out;
  }
  /// Returns the k-th element of a block, or -1 beyond the edge of the tensor.
  [[nodiscard]] FQ_HD std::int64_t element(std::int64_t block, std::int64_t k) const {
    std::int64_t i = 0, step = 1;
    for (int a = outer_axes; a >= 0; --a) {
      const BlockAxis along = axis(a);
      const std::int64_t blocks_above = quotient(block, along.blocks), lengths = quotient(k, along.length);
      const std::int64_t at =
          (block - blocks_above * along.blocks) * along.length + k - lengths * along.length;
      if (at >= along.size) return -1;
      i += at * step;
      step *= along.size;
      block = blocks_above;
      k = lengths;
    }
    return i;
  }

  /// Whether block j holds the elements from j * last.length to (j + 1) * last.length.
  [[nodiscard]] bool consecutive() const {
    for (int a = 0; a < outer_axes; ++a)
      if (outer[a].length > 1) return false;
    return last.size % last.length == 0;
  }
  /// Returns the index by which a vector of 16 aligned elements reads its numbers with one load; empty if
  /// the map has none.
  [[nodiscard]] std::optional<NumberIndex> number_index() const {
    std::optional<NumberIndex> out;
    if (outer_axes == 0 && last.blocks == 1) return NumberIndex{62, 0, 0};
    if (consecutive() && power(last.length) >= 4) out = {power(last.length), 0, 0};
    if (!columns() || power(last.size) < 4) return out;
    const std::int64_t tile = outer[outer_axes - 1].length * last.size;
    if (power(tile) > 0) out = {power(tile), power(last.size), last.size - 1};
    return out;
  }
  /// Whether the elements form consecutive full tiles of outer[outer_axes - 1].length rows by last.size
  /// columns, with one block per column.
  [[nodiscard]] bool columns() const {
    if (outer_axes == 0 || last.length != 1) return false;
    for (int a = 0; a + 1 < outer_axes; ++a)
      if (outer[a].length > 1) return false;
    return outer[outer_axes - 1].size % outer[outer_axes - 1].length == 0;
  }

  /// Returns the last position at or before element i that splits no block.
  [[nodiscard]] std::int64_t cut(std::int64_t i) const {
    int a = 0;
    while (a < outer_axes && outer[a].length == 1) ++a;
    std::int64_t inner = 1;
    for (int below = a + 1; below <= outer_axes; ++below) inner *= axis(below).size;
    const std::int64_t row = axis(a).size * inner, block = axis(a).length * inner;
    return i - i % row + i % row / block * block;
  }

  /// Calls f(begin, end, j, step) for consecutive runs of the elements [from, to). Element i of a run
  /// belongs to block j + (i - begin) * step, with step 0 or 1.
  template <class F>
  void visit_runs(std::int64_t from, std::int64_t to, F&& f) const {
    for (std::int64_t i = from; i < to;) {
      const std::int64_t row = i / last.size, end = std::min(to, (row + 1) * last.size),
                         base = first_block(row);
      if (last.length == 1 && last.blocks > 1) {
        f(i, end, base + i - row * last.size, std::int64_t{1});
        i = end;
      }
      for (std::int64_t j = (i - row * last.size) / last.length; i < end; ++j) {
        const std::int64_t stop = std::min(end, row * last.size + (j + 1) * last.length);
        f(i, stop, base + j, std::int64_t{0});
        i = stop;
      }
    }
  }

 private:
  /// Returns the exponent of a power of two, or -1 for other numbers.
  [[nodiscard]] static int power(std::int64_t n) {
    const auto word = static_cast<std::uint64_t>(n);
    return std::has_single_bit(word) ? std::countr_zero(word) : -1;
  }
};

/// Calls f as BlockMap::visit_runs, for all elements of a tensor of shape `x`.
template <class F>
void visit_block_runs(const Shape& x, const Shape& block, F&& f) {
  if (const std::int64_t count = numel(x); count > 0) BlockMap::of(x, block).visit_runs(0, count, f);
}

}  // namespace fq::detail
