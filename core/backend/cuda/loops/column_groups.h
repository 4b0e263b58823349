#pragma once

/// Groups of columns of a matrix as items of a launch: an item has a group of columns of every so-manieth
/// line, so that what belongs to columns is found once, and all items together walk through memory from its
/// begin to its end. Plain arithmetic, for host and device.

#include <algorithm>
#include <utility>

#include "fakequant/core/backend/cuda/loops/divisor.h"

namespace fq::cuda {

struct ColumnGroups {
  static constexpr std::int64_t least = 16;      ///< lines of an item, where that leaves all threads busy
  static constexpr std::int64_t most_waves = 8;  ///< items, as times of the threads that run at once
  struct Part {
    std::int64_t first;   ///< element of the part's first line
    std::int64_t column;  ///< its first
  };
  std::int64_t lines, columns, step;  ///< lines from one of an item to its next
  Divisor groups;                     ///< of a line

  /// Of groups of `size` columns, which divides `width`; `threads` run at once.
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
  /// use(first, load(first)) for the part's groups, which begin at element `first`; `ahead` loads are under
  /// way at once.
  template <int ahead, class Load, class Use>
  FQ_HD void for_lines(const Part& from, const Load& load, const Use& use) const {
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
