#pragma once

/// OCTAV: the clip with the smallest mean squared error of quantization (Sakr et al., "Optimal Clipping and
/// Magnitude-aware Differentiation for Improved Quantization-aware Training", ICML 2022). Newton's iteration
///
///     s' = sum |x| [|x| > s] / (n * count [0 < |x| <= s] + count [|x| > s])       n = 4^-bits / 3
///
/// (n = 4^-bits / 12 of unsigned formats) from s = 0 on, until s stays, at most 64 times; in double. The
/// answer is the s met on the way with the smallest n * s^2 * count [0 < |x| <= s] + sum (|x| - s)^2
/// [|x| > s], the first of equals: the last s but where Newton turns back. It is 0 without values other than
/// zeros. Throws ArgumentError for a float format, whose steps are not even, and bits outside 2 .. 16.

#include "fakequant/calib/histogram.h"

namespace fq {

/// For each index of the kept axes: f32, of the shape that MaxCalibrator gives. x f32, f16 or bf16, or f64
/// rounded to f32; any layout. Throws ArgumentError for an empty tensor, NumericError for NaN and Inf.
[[nodiscard]] Tensor octav_amax(const Tensor& x, const Axes& axis, NumBits num_bits, bool is_unsigned);

/// Of the centres of bins, so often as they were counted; zeros in the first bin count as small values, so
/// collect with skip_zeros. Throws ArgumentError as `amax_by_percentile` too.
[[nodiscard]] float amax_by_octav(const Histogram& histogram, NumBits num_bits, bool is_unsigned);

}  // namespace fq
