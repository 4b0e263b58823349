#pragma once

/// Convolutions and their transposes.
///
/// Kernels are not flipped (they correlate, as in PyTorch). Where two quantized inputs are multiplied as
/// codes the result is an Accumulator of exact int32 sums, or floats of minifloats, as `linear` says.
///
///     Variable y = ops::conv2d(x, w, bias, {.stride = {2}, .padding = {1}});  // w [64, 32, 3, 3]

#include <cstdint>
#include <vector>

#include "fakequant/core/ops/shape.h"
#include "fakequant/core/variable.h"

namespace fq::ops {

/// One number an axis ((depth,) height, width), or one for all of them; empty means the default.
struct ConvOptions {
  std::vector<std::int64_t> stride;            ///< pixels, at least 1; default 1
  std::vector<std::int64_t> padding;           ///< elements on both sides, at least 0; default 0
  std::vector<std::int64_t> dilation;          ///< distance of taps, at least 1; default 1
  std::int64_t groups = 1;                     ///< must divide both channel counts
  std::vector<std::int64_t> padding_end = {};  ///< behind the image; default: as `padding`
  PadMode padding_mode = PadMode::constant;    ///< what the padding is: zeros, or elements of the image
};

/// y [n, o, oh, ow] = x [n, c, h, w] * w [o, c/groups, kh, kw] + bias [o];
/// oh = floor((h + 2*padding - dilation*(kh - 1) - 1) / stride) + 1. `bias` may be undefined.
/// x of any layout (a row-major one is converted), w row-major, y channels_last. f32, or all f64.
///
/// Where both inputs are quantized, x per tensor and w per tensor or along axis 0, the codes are multiplied,
/// as in `linear`. Any other quantized input is dequantized first.
/// Forward results are the same bits for any number of threads. The gradient of x is computed only when asked
/// for. Padding that is not zeros on both sides alike is an operator before it, `pad`, which codes pass as
/// codes. Throws ArgumentError when ranks, channels, groups, options, dtypes or devices do not fit, when the
/// kernel is larger than the padded input, and when integer sums could leave int32.
[[nodiscard]] Variable conv2d(const Variable& x, const Variable& w, const Variable& bias = {},
                              const ConvOptions& options = {});

/// As `conv2d` of height 1: x [n, c, l], w [o, c/groups, k], y [n, o, ol], row-major.
[[nodiscard]] Variable conv1d(const Variable& x, const Variable& w, const Variable& bias = {},
                              const ConvOptions& options = {});

/// As `conv2d` of volumes: x [n, c, d, h, w], w [o, c/groups, kd, kh, kw], y [n, o, od, oh, ow], row-major.
/// The slabs that the taps of depth read are gathered as channels of images, one image for each slab of y:
/// the input takes up to kd times its memory meanwhile.
[[nodiscard]] Variable conv3d(const Variable& x, const Variable& w, const Variable& bias = {},
                              const ConvOptions& options = {});

/// The transpose of `conv2d` in its input: x [n, i, h, w], w [i, o/groups, kh, kw], bias [o], y [n, o, oh,
/// ow]; oh = (h - 1)*stride - 2*padding + dilation*(kh - 1) + 1 + output_padding. `bias` may be undefined.
/// `output_padding`: rows and columns added at the end, less than the stride; default 0. The padding, which
/// is cut off, is the same on both sides. x of any layout, y channels_last. f32, or all f64.
///
/// Where both inputs are quantized, x per tensor and w per tensor or along axis 1 (with groups, channel c of
/// the output has scale c % (o/groups)), the codes are multiplied, as in `linear`. Any other quantized input
/// is dequantized first. Forward results are the same bits for any number of threads. Throws ArgumentError
/// when ranks, channels, groups, options, dtypes or devices do not fit, when no output pixel is left, and
/// when integer sums could leave int32.
[[nodiscard]] Variable conv_transpose2d(const Variable& x, const Variable& w, const Variable& bias = {},
                                        const ConvOptions& options = {},
                                        const std::vector<std::int64_t>& output_padding = {});

/// As `conv_transpose2d` of height 1: x [n, i, l], w [i, o/groups, k], y [n, o, ol], row-major.
[[nodiscard]] Variable conv_transpose1d(const Variable& x, const Variable& w, const Variable& bias = {},
                                        const ConvOptions& options = {},
                                        const std::vector<std::int64_t>& output_padding = {});

/// As `conv_transpose2d` of volumes: x [n, i, d, h, w], w [i, o/groups, kd, kh, kw], y [n, o, od, oh, ow],
/// row-major; memory as `conv3d`.
[[nodiscard]] Variable conv_transpose3d(const Variable& x, const Variable& w, const Variable& bias = {},
                                        const ConvOptions& options = {},
                                        const std::vector<std::int64_t>& output_padding = {});

}  // namespace fq::ops
