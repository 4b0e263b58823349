#pragma once

/// How rows are shared out among the threads of blocks. Plain arithmetic, for host and device.

#include <cstdint>

#include "fakequant/core/backend/cuda/loops/launch_shape.h"

namespace fq::cuda {

/// `lanes` threads a row, so that short rows leave few threads idle; each takes groups of eight elements in
/// turn.
struct RowBlocks {
  std::int64_t rows, length;
  int lanes;

  [[nodiscard]] static RowBlocks of(std::int64_t rows, std::int64_t length) {
    int lanes = 1;
    while (lanes < block_threads && lanes * 8 < length) lanes *= 2;
    return {rows, length, lanes};
  }
  [[nodiscard]] FQ_HD int rows_of_block() const { return block_threads / lanes; }
  [[nodiscard]] std::int64_t blocks() const { return (rows + rows_of_block() - 1) / rows_of_block(); }

  /// One thread's place: its row, and the first thread of that row in the block.
  struct Place {
    std::int64_t row;
    int lane, first;
  };
  [[nodiscard]] FQ_HD Place place(Thread t) const {
    const int lane = t.thread % lanes, first = t.thread - lane;
    return {t.block * rows_of_block() + first / lanes, lane, first};
  }
};

}  // namespace fq::cuda
