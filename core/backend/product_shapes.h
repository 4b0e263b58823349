#pragma once

/// Shapes and factors of products on every device.

#include <array>
#include <cstdint>

#include "fakequant/core/blocks/shape.h"
#include "fakequant/core/dtype.h"
#include "fakequant/core/tensor.h"

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

/// Codes in memory, i8 or u8, with magnitudes of at most `largest`.
struct Codes {
  const void* data;
  DType dtype;
  std::int64_t largest;
};

/// Distribution of a product over threads. `by_shape` depends only on the shape: every bit is the same for
/// any number of threads. `by_threads` gives one part to each thread, which is faster. Integer sums are the
/// same with both.
enum class Sharing : unsigned char { by_shape, by_threads };

/// A tensor read as row-major matrices [rows, columns], or as their transposes.
struct Factor {
  const Tensor& tensor;
  std::int64_t rows, columns;
  bool transposed = false;
};

}  // namespace fq::detail
