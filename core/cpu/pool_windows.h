#pragma once

/// Which pixels a pooling window covers, and which windows cover a pixel; not a public header.

#include <algorithm>

#include "fakequant/core/cpu/pool.h"

namespace fq::cpu {

/// The part of window (i, j) that lies in the image: rows [top, bottom), columns [left, right).
struct Window {
  std::int64_t top, bottom, left, right, first_row, first_column;

  Window(const PoolSizes& s, std::int64_t i, std::int64_t j)
      : first_row(i * s.sh - s.ph), first_column(j * s.sw - s.pw) {
    top = std::max<std::int64_t>(first_row, 0);
    bottom = std::min(first_row + s.kh, s.h);
    left = std::max<std::int64_t>(first_column, 0);
    right = std::min(first_column + s.kw, s.w);
  }
  [[nodiscard]] std::int64_t pixels() const { return (bottom - top) * (right - left); }
  /// Where pixel (h, w) of the image lies in the window, counted in (h, w) order.
  [[nodiscard]] std::int64_t place(const PoolSizes& s, std::int64_t h, std::int64_t w) const {
    return (h - first_row) * s.kw + (w - first_column);
  }
};

/// The windows [begin, end) along one axis that contain a position, counted from the start of the padding.
/// Positions only rise: moving on takes no division.
struct Covering {
  std::int64_t kernel, stride, windows;
  std::int64_t begin = 0, end = 0;

  void move_to(std::int64_t position) {
    while (begin < windows && begin * stride + kernel <= position) ++begin;
    while (end < windows && end * stride <= position) ++end;
  }
};

}  // namespace fq::cpu
