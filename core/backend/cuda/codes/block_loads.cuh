#pragma once

/// Per-block numbers, read for groups of eight elements. All functions set out[j] = values[block of the j-th
/// following element], j < count <= 8. The other elements are unspecified numbers.

#include "fakequant/core/backend/cuda/loops/divisor.h"
#include "fakequant/core/backend/cuda/loops/groups.cuh"
#include "fakequant/core/blocks/detail/block_map.h"

namespace fq::cuda {

/// core's AxisBlocks with precomputed divisors.
struct AxisBlocks : fq::detail::AxisBlocks {
  Divisor size_divisor, length_divisor;

  AxisBlocks(const fq::detail::AxisBlocks& own)
      : fq::detail::AxisBlocks(own), size_divisor(own.size), length_divisor(own.length) {}
  [[nodiscard]] static AxisBlocks of(const Shape& shape, Layout layout, int axis) {
    return fq::detail::AxisBlocks::of(shape, layout, axis);
  }
  [[nodiscard]] static AxisBlocks repeating(std::int64_t count, std::int64_t numbers) {
    return fq::detail::AxisBlocks::repeating(count, numbers);
  }
  [[nodiscard]] FQ_HD Place place(std::int64_t i) const {
    if (blocks == 1) return {0, 0};
    const std::int64_t at = size_divisor.take_remainder(i);
    return {at, length == 1 ? at : length_divisor.quotient(at)};
  }
};

/// core's BlockMap with precomputed divisors: the size of an axis and the length of its blocks.
struct BlockMap : fq::detail::BlockMap {
  struct AxisDivisors {
    Divisor size, length;
  };
  AxisDivisors outer_divisors[most_axes], last_divisors;

  BlockMap(const fq::detail::BlockMap& own)
      : fq::detail::BlockMap(own), last_divisors{own.last.size, own.last.length} {
    for (int a = 0; a < outer_axes; ++a) outer_divisors[a] = {outer[a].size, outer[a].length};
  }
  [[nodiscard]] FQ_HD Place place(std::int64_t i) const {
    const std::int64_t at = last_divisors.size.take_remainder(i);
    return {i, first_block(i), {at, last.length == 1 ? at : last_divisors.length.quotient(at)}};
  }
  [[nodiscard]] FQ_HD std::int64_t first_block(std::int64_t row) const {
    std::int64_t block = 0, step = last.blocks;
    for (int a = outer_axes; a-- > 0; step *= outer[a].blocks)
      block += outer_divisors[a].length.quotient(outer_divisors[a].size.take_remainder(row)) * step;
    return block;
  }
  [[nodiscard]] FQ_HD std::int64_t block_index(std::int64_t i) const {
    const Place found = place(i);
    return found.base + found.row_place.index;
  }
};

namespace loops {

template <class T>
FQ_HD void fill_group(T value, T (&out)[group_size]) {
  for (int j = 0; j < group_size; ++j) out[j] = value;
}

/// Clamps a count to the range that matters for a group.
FQ_HD int few(std::int64_t elements) {
  return elements < 2 * group_size ? static_cast<int>(elements) : 2 * group_size;
}

/// Loads across the ends of blocks and rows. `next_row` are the values of the row after the first. If rows
/// have fewer than 8 elements, all rows must have the same values.
template <class T>
FQ_HD void walk_blocks(const fq::detail::AxisBlocks& blocks, AxisBlocks::Place from, const T* value,
                       const T* next_row, int count, T (&out)[group_size]) {
  const int length = few(blocks.length), size = few(blocks.size);
  int left = few((from.index + 1) * blocks.length - from.at), row_left = few(blocks.size - from.at);
  for (int j = 0; j < group_size; ++j) {
    out[j] = *value;
    if (j + 1 >= count) continue;
    const bool row_ends = --row_left == 0, ends = --left == 0 || row_ends;
    value = row_ends ? next_row : value + (ends ? 1 : 0);
    left = ends ? length : left;
    row_left = row_ends ? size : row_left;
  }
}

template <class T>
FQ_HD void load_row(const fq::detail::AxisBlocks& blocks, AxisBlocks::Place from, const T* values,
                    const T* next_row, int count, T (&out)[group_size]) {
  const T* first = values + from.index;
  const bool one_row = from.at + count <= blocks.size;
  if (one_row && (from.index + 1) * blocks.length - from.at >= count)
    fill_group(*first, out);
  else if (one_row && blocks.length == 1)
    load_group(first, count, out);
  else
    walk_blocks(blocks, from, first, next_row, count, out);
}

/// Loads one by one, in a loop that is not unrolled: arrays indexed by variables would be placed in memory.
template <class T>
FQ_HD void gather_blocks(const BlockMap& blocks, std::int64_t i, const T* values, int count,
                         T (&out)[group_size]) {
  for (int k = 0; k < count; ++k) {
    const T value = values[blocks.block_index(i + k)];
    for (int j = 0; j < group_size; ++j) out[j] = j < k ? out[j] : value;
  }
}

}  // namespace loops

/// Returns the common block of the next `count` elements, or -1 if they may belong to several blocks.
FQ_HD std::int64_t shared_block(const AxisBlocks& blocks, AxisBlocks::Place from, int count) {
  const bool one = from.at + count <= blocks.size && (from.index + 1) * blocks.length - from.at >= count;
  return one ? from.index : -1;
}

template <class T>
FQ_HD void load_blocks(const AxisBlocks& blocks, AxisBlocks::Place from, const T* values, int count,
                       T (&out)[group_size]) {
  if (blocks.blocks == 1) return loops::fill_group(*values, out);
  loops::load_row(blocks, from, values, values, count, out);
}

template <class T>
FQ_HD void load_blocks(const BlockMap& blocks, const BlockMap::Place& from, const T* values, int count,
                       T (&out)[group_size]) {
  if (blocks.last.size >= group_size)
    return loops::load_row(blocks.last, from.row_place, values + from.base,
                           values + blocks.first_block(from.row + 1), count, out);
  loops::gather_blocks(blocks, from.row * blocks.last.size + from.row_place.at, values, count, out);
}

}  // namespace fq::cuda
