#pragma once

/// Groups of matrix columns as items of a launch. An item processes one group of columns in every `step`-th
/// line, so that per-column data is loaded once. All items together walk through memory from begin to end.
/// Plain arithmetic, for host and device.

#include <algorithm>
#include <utility>

#include "fakequant/core/backend/cuda/loops/divisor.h"

namespace fq::cuda {

struct ColumnGroups {
  /// Minimum lines per item, if enough items remain for all threads.
  static constexpr std::int64_t least = 16;
  /// Maximum number of items, in multiples of the concurrent threads.
  static constexpr std::int64_t most_waves = 8;
  struct Part {
    std::int64_t first;   ///< element of the first line
    std::int64_t column;  ///< first column
  };
  std::int64_t lines, columns, step;  ///< distance of an item's lines, in lines
  Divisor groups;                     ///< groups per line

  /// Groups have `size` columns, which divides `width`. `threads` run concurrently.
  ColumnGroups(std::int64_t height, std::int64_t width, int size, std::int64_t threads)
      : lines(height), columns(width), groups(width / size) {
    const std::int64_t waves =
        std::clamp<std::int64_t>(height * groups.value / (threads * least), 1, most_waves);
    step = std::clamp<std::int64_t>(waves * threads / groups.value, 1, std::max<std::int64_t>(height, 1));
  }

  [[nodiscard]] std::int64_t items() const { return lines == 0 ? 0 : step * groups.value; }
  [[nodiscard]] FQ_HD Part part(std::int64_t item, int size) const {
    const std::int64_t column = groups.take_remainder(item) * size;
    return {item * columns + column, column};
  }
  /// Calls use(first, load(first)) for the groups of the part, which begin at element `first`. `ahead` loads
  /// are in flight at a time.
  template <int ahead, class Load, class Use>
  FQ_HD void visit_lines(const Part& from, const Load& load, const Use& use) const {
    walk(from.first, load, use, std::make_integer_sequence<int, ahead>{});
  }

 private:
  template <class Load, class Use, int... K>
  FQ_HD void walk(std::int64_t first, const Load& load, const Use& use,
                  std::integer_sequence<int, K...>) const {
    constexpr int ahead = sizeof...(K);
    const std::int64_t stride = step * columns, end = lines * columns;
    decltype(load(first)) held[ahead];
    const auto fetch = [&](std::int64_t at, auto& into) {
      if (at < end) into = load(at);
    };
    const auto next = [&](auto& own) {
      if (first >= end) return;
      use(first, own);
      fetch(first + ahead * stride, own);
      first += stride;
    };
    (fetch(first + K * stride, held[K]), ...);
    while (first < end) (next(held[K]), ...);
  }
};

}  // namespace fq::cuda
