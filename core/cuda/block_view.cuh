#pragma once

/// Which scale each element of an array has; not a public header.

#include "fakequant/core/cuda/channels.cuh"
#include "fakequant/core/cuda/groups.cuh"
#include "fakequant/core/error.h"
#include "fakequant/core/memory_view.h"
#include "fakequant/core/reference/blocks.h"

namespace fq::cuda {

/// Elements in memory order in blocks of one scale each; the blocks are numbered row-major. Channels are
/// blocks too, and so is a whole tensor.
struct BlockView {
  static constexpr int most_axes = 8;
  fq::detail::BlockAxis outer[most_axes], last;
  int outer_axes = 0;

  /// Where an element is: `at` in row `row` of the last axis, whose first block is `base`.
  struct Place {
    std::int64_t row, at, base;
  };

  /// Of row-major elements; no block length is 0.
  [[nodiscard]] static BlockView of(const Shape& shape, const Shape& block) {
    const auto axes = fq::detail::merged_axes(shape, block);
    BlockView out;
    out.last = axes.back();
    out.outer_axes = static_cast<int>(axes.size()) - 1;
    if (out.outer_axes > most_axes) throw ArgumentError("[cuda] blocks along more than 9 axes");
    std::copy_n(axes.begin(), out.outer_axes, out.outer);
    return out;
  }
  /// One block for each index of the axis; one for all where it is -1.
  [[nodiscard]] static BlockView of_axis(const Shape& shape, Layout layout, int axis) {
    if (axis < 0) return of({numel(shape)}, {numel(shape)});
    const AxisView view = fq::detail::memory_view(shape, layout, axis);
    return of({view.outer, view.size, view.inner}, {view.outer, 1, view.inner});
  }

  [[nodiscard]] FQ_HD Place place(std::int64_t i) const {
    if (outer_axes == 0 && last.blocks == 1) return {0, i, 0};
    const std::int64_t row = quotient(i, last.size);
    return {row, i - row * last.size, first_block(row)};
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
      const fq::detail::BlockAxis& axis = a == outer_axes ? last : outer[a];
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

  /// out[j] = values[block of element j from there on], j < count <= 8; the others are unspecified numbers.
  template <class T>
  FQ_HD void load(Place from, const T* values, int count, T (&out)[group_size]) const {
    std::int64_t index = last.length == 1 ? from.at : quotient(from.at, last.length);
    std::int64_t left = (index + 1) * last.length - from.at;
    const bool one_row = from.at + count <= last.size;
    if (one_row && left >= count) {
      const T value = values[from.base + index];
      for (int j = 0; j < group_size; ++j) out[j] = value;
      return;
    }
    if (one_row && last.length == 1) return load_group(values + from.base + index, count, out);
    for (int j = 0; j < group_size; ++j) {
      out[j] = values[from.base + index];
      if (j + 1 >= count) continue;
      --left;
      if (++from.at == last.size) {
        from = {from.row + 1, 0, first_block(from.row + 1)};
        index = 0;
        left = last.length;
      } else if (left == 0) {
        ++index;
        left = last.length;
      }
    }
  }
};

}  // namespace fq::cuda
