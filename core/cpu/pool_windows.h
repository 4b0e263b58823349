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

/// The windows that contain a pixel: rows [top, bottom), columns [left, right) of the output.
struct Windows {
  std::int64_t top, bottom, left, right;

  Windows(const PoolSizes& s, std::int64_t h, std::int64_t w)
      : top(first(h + s.ph, s.kh, s.sh)),
        bottom(std::min((h + s.ph) / s.sh + 1, s.oh)),
        left(first(w + s.pw, s.kw, s.sw)),
        right(std::min((w + s.pw) / s.sw + 1, s.ow)) {}
  /// ceil((at - kernel + 1) / stride), at least 0
  static std::int64_t first(std::int64_t at, std::int64_t kernel, std::int64_t stride) {
    return at < kernel ? 0 : (at - kernel) / stride + 1;
  }
};

}  // namespace fq::cpu
