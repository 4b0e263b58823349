#pragma once

/// Which block, and so which scale, each element of an array has; not a public header. Plain arithmetic, for
/// host and device.

#include "fakequant/core/cuda/reduction_shape.h"
#include "fakequant/core/error.h"
#include "fakequant/core/memory_view.h"
#include "fakequant/core/reference/blocks.h"

namespace fq::cuda {

/// Elements in memory order, in rows of `size` elements that are alike: `blocks` blocks of `length`, the last
/// of which may be partial. Channels are blocks, and so is a whole tensor.
struct AxisBlocks {
  std::int64_t size, length, blocks;

  /// Where an element is: `at` in its row, in block `index`.
  struct Place {
    std::int64_t at, index;
  };

  /// One block for each index of the axis; one for all where it is -1. There are elements.
  [[nodiscard]] static AxisBlocks of(const Shape& shape, Layout layout, int axis) {
    if (axis < 0) return {numel(shape), numel(shape), 1};
    const AxisView view = fq::detail::memory_view(shape, layout, axis);
    return {view.size * view.inner, view.inner, view.size};
  }
  /// Of numbers that repeat along the innermost elements.
  [[nodiscard]] static AxisBlocks repeating(std::int64_t count, std::int64_t numbers) {
    return numbers == 1 ? AxisBlocks{count, count, 1} : AxisBlocks{numbers, 1, numbers};
  }

  [[nodiscard]] FQ_HD Place place(std::int64_t i) const {
    if (blocks == 1) return {0, 0};
    return in_row(i - quotient(i, size) * size);
  }
  [[nodiscard]] FQ_HD Place in_row(std::int64_t at) const {
    return {at, length == 1 ? at : quotient(at, length)};
  }
};

/// Row-major elements in blocks of any shape, numbered row-major.
struct BlockView {
  static constexpr int most_axes = 8;
  fq::detail::BlockAxis outer[most_axes];
  int outer_axes = 0;
  AxisBlocks last;

  /// Where an element is: in row `row` of the last axis, whose first block is `base`.
  struct Place {
    std::int64_t row, base;
    AxisBlocks::Place in_row;
  };

  /// Of elements that there are; no block length is 0.
  [[nodiscard]] static BlockView of(const Shape& shape, const Shape& block) {
    const auto axes = fq::detail::merged_axes(shape, block);
    BlockView out;
    out.outer_axes = static_cast<int>(axes.size()) - 1;
    if (out.outer_axes > most_axes) throw ArgumentError("[cuda] blocks along more than 9 axes");
    std::copy_n(axes.begin(), out.outer_axes, out.outer);
    out.last = {axes.back().size, axes.back().length, axes.back().blocks};
    return out;
  }

  [[nodiscard]] FQ_HD Place place(std::int64_t i) const {
    const std::int64_t row = quotient(i, last.size);
    return {row, first_block(row), last.in_row(i - row * last.size)};
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
  [[nodiscard]] FQ_HD std::int64_t block_of(std::int64_t i) const {
    const Place found = place(i);
    return found.base + found.in_row.index;
  }

  /// Elements of a block that is not cut short by an edge.
  [[nodiscard]] FQ_HD std::int64_t length() const {
    std::int64_t out = last.length;
    for (int a = 0; a < outer_axes; ++a) out *= outer[a].length;
    return out;
  }
  /// The k-th element of a block, -1 where it lies beyond the edge.
  [[nodiscard]] FQ_HD std::int64_t element(std::int64_t block, std::int64_t k) const {
    std::int64_t i = 0, step = 1;
    for (int a = outer_axes; a >= 0; --a) {
      const fq::detail::BlockAxis axis =
          a == outer_axes ? fq::detail::BlockAxis{last.size, last.length, last.blocks} : outer[a];
      const std::int64_t blocks_above = quotient(block, axis.blocks), lengths = quotient(k, axis.length);
      const std::int64_t at = (block - blocks_above * axis.blocks) * axis.length + k - lengths * axis.length;
      if (at >= axis.size) return -1;
      i += at * step;
      step *= axis.size;
      block = blocks_above;
      k = lengths;
    }
    return i;
  }
};

}  // namespace fq::cuda
