#pragma once

/// Groups of columns of a few lines of a matrix as items of a launch: what belongs to columns is found once
/// for all of an item's lines. Plain arithmetic, for host and device.

#include <algorithm>

#include "fakequant/core/backend/cuda/loops/divisor.h"

namespace fq::cuda {

struct ColumnsOfLines {
  static constexpr std::int64_t most = 16, busy_threads = 4096;  ///< lines of an item; threads of a processor
  struct Part {
    std::int64_t line, column;
  };
  std::int64_t lines, columns;
  Divisor groups;  ///< of a line
  int each;        ///< lines of an item: no more than leave every processor enough to do

  /// Of groups of `size` columns, which divides `width`.
  ColumnsOfLines(std::int64_t height, std::int64_t width, int size, std::int64_t processors)
      : lines(height),
        columns(width),
        groups(width / size),
        each(static_cast<int>(
            std::clamp<std::int64_t>(height * groups.value / (busy_threads * processors), 1, most))) {}

  [[nodiscard]] std::int64_t items() const { return (lines + each - 1) / each * groups.value; }
  [[nodiscard]] FQ_HD Part part(std::int64_t item, int size) const {
    const std::int64_t group = groups.take_remainder(item);
    return {item * each, group * size};
  }
  /// load(first, v), then use(first, v) for the part's groups, which begin at element `first`; two loads are
  /// under way at once.
  template <int size, class Load, class Use>
  FQ_HD void for_lines(const Part& from, const Load& load, const Use& use) const {
    const std::int64_t left = lines - from.line;
    std::int64_t first = from.line * columns + from.column;
    const int count = left < each ? static_cast<int>(left) : each;
    int line = 0;
    for (; line + 2 <= count; line += 2, first += 2 * columns) {
      float v[size], next[size];
      load(first, v);
      load(first + columns, next);
      use(first, v);
      use(first + columns, next);
    }
    if (line == count) return;
    float v[size];
    load(first, v);
    use(first, v);
  }
};

}  // namespace fq::cuda
