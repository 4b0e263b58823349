#pragma once

/// Convolutions and their transposes.
///
/// Kernels are not flipped (they correlate, as in PyTorch). If two quantized inputs are multiplied as codes,
/// the result is an Accumulator of exact int32 sums, or floats for minifloats, as in `linear`.
///
///     Variable y = ops::conv2d(x, w, bias, {.stride = {2}, .padding = {1}});  // w [64, 32, 3, 3]

#include <cstdint>
#include <vector>

#include "fakequant/core/ops/shape.h"
#include "fakequant/core/variable.h"

namespace fq::ops {

/// Options of a convolution. Each list has one number for each axis ((depth,) height, width), or one for all
/// of them. An empty list means the default.
struct ConvOptions {
  std::vector<std::int64_t> stride;            ///< in pixels, at least 1; default 1
  std::vector<std::int64_t> padding;           ///< elements on both sides, at least 0; default 0
  std::vector<std::int64_t> dilation;          ///< distance between taps in pixels, at least 1; default 1
  std::int64_t groups = 1;                     ///< must divide both channel counts
  std::vector<std::int64_t> padding_end = {};  ///< padding after the image; default: as `padding`
  PadMode padding_mode = PadMode::constant;    ///< padding values: zeros, or elements of the image
};

/// Returns y [n, o, oh, ow] = x [n, c, h, w] * w [o, c/groups, kh, kw] + bias [o], with oh = floor((h +
/// 2*padding - dilation*(kh - 1) - 1) / stride) + 1. `bias` may be undefined. x has any layout (a row-major
/// one is converted), w is row-major and y is channels_last. All are f32, or all f64.
///
/// If both inputs are quantized, x per tensor and w per tensor or along axis 0, the codes are multiplied, as
/// in `linear`. Any other quantized input is dequantized first. Forward results have the same bits for any
/// number of threads. The gradient of x is computed only if it is needed. Padding that is not zeros, or that
/// differs between both sides, is recorded as a separate `pad` operator before the convolution, which keeps
/// codes as codes. Throws ArgumentError if ranks, channels, groups, options, dtypes or devices do not fit, if
/// the kernel is larger than the padded input, or if integer sums could exceed int32.
[[nodiscard]] Variable conv2d(const Variable& x, const Variable& w, const Variable& bias = {},
                              const ConvOptions& options = {});

/// Applies `conv2d` with height 1: x [n, c, l], w [o, c/groups, k], y [n, o, ol], row-major.
[[nodiscard]] Variable conv1d(const Variable& x, const Variable& w, const Variable& bias = {},
                              const ConvOptions& options = {});

/// Convolves volumes: x [n, c, d, h, w], w [o, c/groups, kd, kh, kw], y [n, o, od, oh, ow], row-major. Each
/// slab of y becomes one image, whose channels are the input slabs that the taps of depth read. The input
/// therefore takes up to kd times its memory during the call.
[[nodiscard]] Variable conv3d(const Variable& x, const Variable& w, const Variable& bias = {},
                              const ConvOptions& options = {});

/// Transposed `conv2d`: x [n, i, h, w], w [i, o/groups, kh, kw], bias [o], y [n, o, oh, ow] with oh = (h -
/// 1)*stride - 2*padding + dilation*(kh - 1) + 1 + output_padding. `bias` may be undefined. `output_padding`
/// is the number of rows and columns added at the end, less than the stride; default 0. The padding is cut
/// off equally on both sides. x has any layout, y is channels_last. All are f32, or all f64.
///
/// If both inputs are quantized, x per tensor and w per tensor or along axis 1 (with groups, channel c of the
/// output has scale c % (o/groups)), the codes are multiplied, as in `linear`. Any other quantized input is
/// dequantized first. Forward results have the same bits for any number of threads. Throws ArgumentError if
/// ranks, channels, groups, options, dtypes or devices do not fit, if no output pixel is left, or if integer
/// sums could exceed int32.
[[nodiscard]] Variable conv_transpose2d(const Variable& x, const Variable& w, const Variable& bias = {},
                                        const ConvOptions& options = {},
                                        const std::vector<std::int64_t>& output_padding = {});

/// Applies `conv_transpose2d` with height 1: x [n, i, l], w [i, o/groups, k], y [n, o, ol], row-major.
[[nodiscard]] Variable conv_transpose1d(const Variable& x, const Variable& w, const Variable& bias = {},
                                        const ConvOptions& options = {},
                                        const std::vector<std::int64_t>& output_padding = {});

/// Transposed `conv3d`: x [n, i, d, h, w], w [i, o/groups, kd, kh, kw], y [n, o, od, oh, ow], row-major. It
/// needs as much memory as `conv3d`.
[[nodiscard]] Variable conv_transpose3d(const Variable& x, const Variable& w, const Variable& bias = {},
                                        const ConvOptions& options = {},
                                        const std::vector<std::int64_t>& output_padding = {});

}  // namespace fq::ops
