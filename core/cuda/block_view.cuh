#pragma once

/// Which scale each element of an array has; not a public header.

#include <utility>

#include "fakequant/core/cuda/axis_blocks.cuh"
#include "fakequant/core/error.h"

namespace fq::cuda {

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

  /// As AxisBlocks has it.
  template <class T>
  FQ_HD void load(const Place& from, const T* values, int count, T (&out)[group_size]) const {
    if (last.size >= group_size)
      last.load(from.in_row, values + from.base, values + first_block(from.row + 1), count, out);
    else
      gather(from.row * last.size + from.in_row.at, values, count, out,
             std::make_integer_sequence<int, group_size>{});
  }

 private:
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
  /// Of rows shorter than a group.
  template <class T, int... J>
  FQ_HD void gather(std::int64_t i, const T* values, int count, T (&out)[group_size],
                    std::integer_sequence<int, J...>) const {
    ((out[J] = values[block_of(i + (J < count ? J : 0))]), ...);
  }
};

}  // namespace fq::cuda
