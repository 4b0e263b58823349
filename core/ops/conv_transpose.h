#pragma once

/// Transposed convolution.

#include "fakequant/core/ops/conv.h"

namespace fq::ops {

/// The transpose of `conv2d` in its input: x [n, i, h, w], w [i, o/groups, kh, kw], bias [o], y [n, o, oh,
/// ow]; oh = (h - 1)*stride - 2*padding + dilation*(kh - 1) + 1 + output_padding. `bias` may be undefined.
/// `output_padding`: rows and columns added at the end, less than the stride; default 0.
/// x of any layout, y channels_last. f32, or all f64.
///
/// Of two quantized inputs, x per tensor and w per tensor or along axis 1 (with groups, channel c of the
/// output has scale c % (o/groups)), the codes are multiplied, as in `linear`. Any other quantized input is
/// dequantized first. Forward results are the same bits for any number of threads. Throws ArgumentError when
/// ranks, channels, groups, options, dtypes or devices do not fit, when no output pixel is left, and when
/// integer sums could leave int32.
[[nodiscard]] Variable conv_transpose2d(const Variable& x, const Variable& w, const Variable& bias = {},
                                        const ConvOptions& options = {},
                                        const std::vector<std::int64_t>& output_padding = {});

}  // namespace fq::ops
