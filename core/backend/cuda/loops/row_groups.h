#pragma once

/// The parts of rows as items of a launch. Plain arithmetic, for host and device.

#include "fakequant/core/backend/cuda/loops/divisor.h"

namespace fq::cuda {

/// Rows of `width` columns in parts of `most` columns (at most eight), the last of a row may be smaller.
struct RowGroups {
  struct Part {
    std::int64_t row, column;
    int count;
  };
  std::int64_t width;
  int most;
  std::int64_t groups;  ///< of a row
  Divisor by_groups;

  explicit RowGroups(std::int64_t columns, int each = 8)
      : width(columns), most(each), groups((columns + each - 1) / each), by_groups(groups) {}

  [[nodiscard]] FQ_HD Part part(std::int64_t item) const {
    const std::int64_t row = by_groups.quotient(item), column = (item - row * groups) * most;
    const std::int64_t left = width - column;
    return {row, column, left < most ? static_cast<int>(left) : most};
  }
};

}  // namespace fq::cuda
