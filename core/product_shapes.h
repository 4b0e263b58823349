#pragma once

/// What products of every device are told; not a public header.

#include <array>
#include <cstdint>

#include "fakequant/core/dtype.h"
#include "fakequant/core/shape.h"

namespace fq::detail {

/// Sizes of y [n, o, oh, ow] = conv(x [n, c, h, w], w [o, c/groups, kh, kw]); pairs are (height, width).
struct ConvShape {
  std::int64_t n, c, h, w, o, kh, kw, oh, ow;
  std::array<std::int64_t, 2> stride{1, 1}, padding{0, 0}, dilation{1, 1};
  std::int64_t groups = 1;

  [[nodiscard]] Shape x_shape() const { return {n, c, h, w}; }
  [[nodiscard]] Shape w_shape() const { return {o, groups == 0 ? 0 : c / groups, kh, kw}; }
  [[nodiscard]] Shape y_shape() const { return {n, o, oh, ow}; }
};

/// Codes in memory, i8 or u8, none larger than `largest` in magnitude.
struct Codes {
  const void* data;
  DType dtype;
  std::int64_t largest;
};

}  // namespace fq::detail
