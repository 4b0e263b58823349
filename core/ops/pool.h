#pragma once

/// Pooling of images [N, C, H, W], sequences [N, C, L] and volumes [N, C, D, H, W].
///
/// Inputs are f32 or f64. 4-D outputs are channels_last (row-major inputs are converted), others row-major.
/// Codes and sums stay integers where the comment of an operator says so; other values are converted to
/// floats. Each function throws ArgumentError for another rank, a kernel or stride below 1, padding that is
/// not smaller than the extent of the dilated kernel, or a kernel larger than the padded input.

#include <array>
#include <cstdint>

#include "fakequant/core/variable.h"

namespace fq::ops {

/// Sizes along H and W, in pixels.
struct Pool2d {
  std::array<std::int64_t, 2> kernel{2, 2};
  std::array<std::int64_t, 2> stride{0, 0};   ///< 0: the kernel size
  std::array<std::int64_t, 2> padding{0, 0};  ///< on both sides
  bool count_include_pad = true;  ///< whether averages divide by the whole window, or by the pixels in it
  std::array<std::int64_t, 2> padding_end{-1, -1};  ///< below and to the right; -1: as `padding`
  /// Whether to add a last window that begins in the image or before it and ends after the padding.
  bool ceil_mode = false;
  std::array<std::int64_t, 2> dilation{1, 1};  ///< distance between the pixels of a window; max pooling only
};

/// Sizes along L.
struct Pool1d {
  std::int64_t kernel = 2;
  std::int64_t stride = 0;  ///< 0: the kernel size
  std::int64_t padding = 0;
  bool count_include_pad = true;
  bool ceil_mode = false;
  std::int64_t dilation = 1;
};

/// Sizes along D, H and W, with the same meaning as in Pool2d.
struct Pool3d {
  std::array<std::int64_t, 3> kernel{2, 2, 2};
  std::array<std::int64_t, 3> stride{0, 0, 0};
  std::array<std::int64_t, 3> padding{0, 0, 0};
  bool count_include_pad = true;
  std::array<std::int64_t, 3> padding_end{-1, -1, -1};
  bool ceil_mode = false;
  std::array<std::int64_t, 3> dilation{1, 1, 1};
};

/// Returns the largest element of each window, without the padding. The first maximum in (h, w) order gets
/// the gradient. NaN wins. Codes with one scale give codes of the same grid. Sums that are not rounded yet
/// give such sums, except sums of an addition of codes and dilated windows, which give floats.
[[nodiscard]] Variable max_pool2d(const Variable& x, const Pool2d& options);
/// Returns fl(t / n), where t is the sum of a window in (h, w) order and n its number of elements. Integer
/// codes with one scale give an Accumulator of averages.
[[nodiscard]] Variable avg_pool2d(const Variable& x, const Pool2d& options);
/// Returns the mean of each channel: [N, C, H, W] to [N, C, 1, 1]. Integer codes with one scale give an
/// Accumulator of sums. Throws ArgumentError if H or W is 0.
[[nodiscard]] Variable global_avg_pool2d(const Variable& x);

/// Applies max_pool2d with H = 1 to [N, C, L].
[[nodiscard]] Variable max_pool1d(const Variable& x, const Pool1d& options);
/// Averages [N, C, H, W] to [N, C, oh, ow]. Window i along an axis of n elements has the elements from
/// floor(i n / o) to below ceil((i + 1) n / o), as in PyTorch. If the output size divides the input size, the
/// result is as in avg_pool2d, else floats.
[[nodiscard]] Variable adaptive_avg_pool2d(const Variable& x, std::array<std::int64_t, 2> size);
/// Applies avg_pool2d with H = 1 to [N, C, L].
[[nodiscard]] Variable avg_pool1d(const Variable& x, const Pool1d& options);

/// Max pooling of [N, C, D, H, W], as max_pool2d with (d, h, w) order. Dilated windows keep codes and sums,
/// too.
[[nodiscard]] Variable max_pool3d(const Variable& x, const Pool3d& options);
/// Average pooling of [N, C, D, H, W], as avg_pool2d: fl(t / n), with t in (d, h, w) order. Integer codes
/// with one scale give an Accumulator of averages if all windows have the same n, else floats of the same
/// values.
[[nodiscard]] Variable avg_pool3d(const Variable& x, const Pool3d& options);
/// Returns the mean of each channel, as global_avg_pool2d: [N, C, D, H, W] to [N, C, 1, 1, 1].
[[nodiscard]] Variable global_avg_pool3d(const Variable& x);
/// Averages [N, C, D, H, W] to [N, C, size..], with the windows of adaptive_avg_pool2d.
[[nodiscard]] Variable adaptive_avg_pool3d(const Variable& x, std::array<std::int64_t, 3> size);

}  // namespace fq::ops
