#pragma once

/// Pooling of images [N, C, H, W], sequences [N, C, L] and volumes [N, C, D, H, W].
///
/// f32 or f64; 4-D outputs are channels_last (row-major inputs are converted), others row-major. Codes
/// and sums that can stay integers do: see each operator; other values are read as floats. Throw
/// ArgumentError for another rank, a kernel or stride below 1, a padding that is not smaller than what the
/// kernel reaches over, or a kernel larger than the padded input.

#include <array>
#include <cstdint>

#include "fakequant/core/variable.h"

namespace fq::ops {

/// Sizes along H and W, in pixels.
struct Pool2d {
  std::array<std::int64_t, 2> kernel{2, 2};
  std::array<std::int64_t, 2> stride{0, 0};   ///< 0: the kernel's size
  std::array<std::int64_t, 2> padding{0, 0};  ///< on both sides
  bool count_include_pad = true;  ///< averages divide by the whole window, else by the pixels in it
  std::array<std::int64_t, 2> padding_end{-1, -1};  ///< below and to the right; -1: as `padding`
  bool ceil_mode =
      false;  ///< also a last window that begins in the image or before it and ends behind the padding
  std::array<std::int64_t, 2> dilation{1, 1};  ///< distance of a window's pixels; of max pooling alone
};

/// Sizes along L.
struct Pool1d {
  std::int64_t kernel = 2;
  std::int64_t stride = 0;  ///< 0: the kernel's size
  std::int64_t padding = 0;
  bool count_include_pad = true;
  bool ceil_mode = false;
  std::int64_t dilation = 1;
};

/// Sizes along D, H and W; each as of Pool2d.
struct Pool3d {
  std::array<std::int64_t, 3> kernel{2, 2, 2};
  std::array<std::int64_t, 3> stride{0, 0, 0};
  std::array<std::int64_t, 3> padding{0, 0, 0};
  bool count_include_pad = true;
  std::array<std::int64_t, 3> padding_end{-1, -1, -1};
  bool ceil_mode = false;
  std::array<std::int64_t, 3> dilation{1, 1, 1};
};

/// The largest element of each window, padding apart; the first one in (h, w) order takes the gradient. NaN
/// wins. Codes with one scale give codes of the same grid, sums not yet rounded give such sums (of an
/// addition of codes, and by a dilated window: floats).
[[nodiscard]] Variable max_pool2d(const Variable& x, const Pool2d& options);
/// fl(t / n), t the sum of a window in (h, w) order. Integer codes with one scale give an Accumulator of
/// averages.
[[nodiscard]] Variable avg_pool2d(const Variable& x, const Pool2d& options);
/// The mean of each channel: [N, C, H, W] to [N, C, 1, 1]. Integer codes with one scale give an Accumulator
/// of sums. Throws ArgumentError when H or W is 0.
[[nodiscard]] Variable global_avg_pool2d(const Variable& x);

/// As max_pool2d with H = 1: [N, C, L].
[[nodiscard]] Variable max_pool1d(const Variable& x, const Pool1d& options);
/// [N, C, H, W] to [N, C, oh, ow]: window i of an axis of n elements is those from floor(i n / o) to below
/// ceil((i + 1) n / o), as PyTorch has it. Averages as avg_pool2d where the output's size divides the
/// input's, else of floats.
[[nodiscard]] Variable adaptive_avg_pool2d(const Variable& x, std::array<std::int64_t, 2> size);
/// As avg_pool2d with H = 1: [N, C, L].
[[nodiscard]] Variable avg_pool1d(const Variable& x, const Pool1d& options);

/// As max_pool2d of [N, C, D, H, W], in (d, h, w) order; dilated windows take codes and sums, too.
[[nodiscard]] Variable max_pool3d(const Variable& x, const Pool3d& options);
/// As avg_pool2d of [N, C, D, H, W]: fl(t / n), t in (d, h, w) order. Integer codes with one scale give an
/// Accumulator of averages where all windows have one n, else floats of the same values.
[[nodiscard]] Variable avg_pool3d(const Variable& x, const Pool3d& options);
/// [N, C, D, H, W] to [N, C, 1, 1, 1], as global_avg_pool2d.
[[nodiscard]] Variable global_avg_pool3d(const Variable& x);
/// [N, C, D, H, W] to [N, C, size..], by the windows of adaptive_avg_pool2d.
[[nodiscard]] Variable adaptive_avg_pool3d(const Variable& x, std::array<std::int64_t, 3> size);

}  // namespace fq::ops
