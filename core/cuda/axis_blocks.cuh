#pragma once

/// Which number of an axis, a channel's or a block's, each element of an array has; not a public header.

#include "fakequant/core/cuda/groups.cuh"
#include "fakequant/core/cuda/reduction_shape.h"
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

  /// out[j] = values[block of element j from there on], j < count <= 8; the others are unspecified numbers.
  template <class T>
  FQ_HD void load(Place from, const T* values, int count, T (&out)[group_size]) const {
    if (blocks == 1) return fill(*values, out);
    load(from, values, values, count, out);
  }
  /// The same with other values for the row after the first, which has 8 elements or the same values.
  template <class T>
  FQ_HD void load(Place from, const T* values, const T* next_row, int count, T (&out)[group_size]) const {
    const T* first = values + from.index;
    const bool one_row = from.at + count <= size;
    if (one_row && (from.index + 1) * length - from.at >= count)
      fill(*first, out);
    else if (one_row && length == 1)
      load_group(first, count, out);
    else
      walk(from, first, next_row, count, out);
  }

 private:
  template <class T>
  FQ_HD static void fill(T value, T (&out)[group_size]) {
    for (int j = 0; j < group_size; ++j) out[j] = value;
  }
  /// No more than a group needs to know.
  FQ_HD static int few(std::int64_t elements) {
    return elements < 2 * group_size ? static_cast<int>(elements) : 2 * group_size;
  }
  /// Across the ends of blocks and rows.
  template <class T>
  FQ_HD void walk(Place from, const T* value, const T* next_row, int count, T (&out)[group_size]) const {
    int left = few((from.index + 1) * length - from.at), row_left = few(size - from.at);
    for (int j = 0; j < group_size; ++j) {
      out[j] = *value;
      if (j + 1 >= count) continue;
      const bool row_ends = --row_left == 0, ends = --left == 0 || row_ends;
      value = row_ends ? next_row : value + (ends ? 1 : 0);
      left = ends ? few(length) : left;
      row_left = row_ends ? few(size) : row_left;
    }
  }
};

}  // namespace fq::cuda
