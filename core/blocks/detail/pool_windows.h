#pragma once

/// Maps between pooling windows and pixels, for host and device.

#include <algorithm>
#include <cstdint>

#include "fakequant/core/numerics/number_formats.h"

namespace fq::detail {

/// Sizes of a 2-D pooling: n images of h * w pixels with c channels, reduced to oh * ow pixels.
struct PoolSizes {
  std::int64_t n, c, h, w, kh, kw, sh, sw, ph, pw, oh, ow;
  std::int64_t eh = 0, ew = 0;  ///< padding after the image; ph and pw are the padding before it

  [[nodiscard]] FQ_HD std::int64_t window() const { return kh * kw; }
};

/// Largest window whose positions fit into a byte.
inline constexpr std::int64_t byte_places = 255;

/// The part of window (i, j) inside the image: rows [top, bottom), columns [left, right).
struct Window {
  std::int64_t top, bottom, left, right, first_row, first_column;

  FQ_HD Window(const PoolSizes& s, std::int64_t i, std::int64_t j)
      : first_row(i * s.sh - s.ph), first_column(j * s.sw - s.pw) {
    top = std::max<std::int64_t>(first_row, 0);
    bottom = std::min(first_row + s.kh, s.h);
    left = std::max<std::int64_t>(first_column, 0);
    right = std::min(first_column + s.kw, s.w);
  }
  [[nodiscard]] FQ_HD std::int64_t pixels() const { return (bottom - top) * (right - left); }
  /// Number of pixels including the padding.
  [[nodiscard]] FQ_HD std::int64_t padded_pixels(const PoolSizes& s) const {
    return (std::min(first_row + s.kh, s.h + s.eh) - first_row) *
           (std::min(first_column + s.kw, s.w + s.ew) - first_column);
  }
  /// Returns the position of pixel (h, w) in the window, in (h, w) order.
  [[nodiscard]] FQ_HD std::int64_t place(const PoolSizes& s, std::int64_t h, std::int64_t w) const {
    return (h - first_row) * s.kw + (w - first_column);
  }
};

/// The windows [begin, end) along one axis that contain a position, counted from the start of the padding.
struct Covering {
  std::int64_t kernel, stride, windows;
  std::int64_t begin = 0, end = 0;

  /// Moves to a later position, without division.
  void advance(std::int64_t position) {
    while (begin < windows && begin * stride + kernel <= position) ++begin;
    while (end < windows && end * stride <= position) ++end;
  }
  /// Moves to any position.
  FQ_HD void seek(std::int64_t position) {
    begin = position < kernel ? 0 : std::min((position - kernel) / stride + 1, windows);
    end = std::min(position / stride + 1, windows);
  }
};

/// Converts E4M3 bytes (sign and magnitude) to integers of the same order (two's complement), and back. -0
/// becomes 0.
FQ_HD std::uint8_t reordered_e4m3(std::uint8_t byte) {
  return static_cast<std::uint8_t>(byte <= 0x80 ? byte & 0x7f : 0x100 - (byte & 0x7f));
}

}  // namespace fq::detail
