#pragma once

/// Distribution of rows over the threads of a launch. Plain arithmetic, for host and device.

#include <cstdint>

#include "fakequant/core/backend/cuda/loops/divisor.h"
#include "fakequant/core/backend/cuda/loops/launch_shape.h"

namespace fq::cuda {

/// Uses `lanes` threads per row, so that short rows leave few threads idle. Each thread takes groups of eight
/// elements in turn.
struct RowBlocks {
  std::int64_t rows, length;
  int lanes;

  [[nodiscard]] static RowBlocks of(std::int64_t rows, std::int64_t length) {
    int lanes = 1;
    while (lanes < block_threads && lanes * 8 < length) lanes *= 2;
    return {rows, length, lanes};
  }
  [[nodiscard]] FQ_HD int rows_of_block() const { return block_threads / lanes; }
  [[nodiscard]] FQ_HD std::int64_t blocks() const { return (rows + rows_of_block() - 1) / rows_of_block(); }

  /// Position of a thread: its row, and the first thread of that row in the block.
  struct Place {
    std::int64_t row;
    int lane, first;
  };
  [[nodiscard]] FQ_HD Place place(Thread t) const {
    const int lane = t.thread % lanes, first = t.thread - lane;
    return {t.block * rows_of_block() + first / lanes, lane, first};
  }
};

/// Rows of `width` columns in parts of `most` columns (at most eight). The last part of a row may be smaller.
struct RowGroups {
  struct Part {
    std::int64_t row, column;
    int count;
  };
  std::int64_t width;
  int most;
  std::int64_t groups;  ///< groups per row
  Divisor group_divisor;

  explicit RowGroups(std::int64_t columns, int each = 8)
      : width(columns), most(each), groups((columns + each - 1) / each), group_divisor(groups) {}

  [[nodiscard]] FQ_HD Part part(std::int64_t item) const {
    const std::int64_t row = group_divisor.quotient(item), column = (item - row * groups) * most;
    const std::int64_t left = width - column;
    return {row, column, left < most ? static_cast<int>(left) : most};
  }
};

}  // namespace fq::cuda
