#pragma once

/// Batch normalization by known statistics as part of the layer before it, channel by channel, for host and
/// device: what folding writes into weights, and what the sums of the weights as they are are read with so
/// that they have the bits of the folded layer.

#include <cmath>

#include "fakequant/core/numerics/detail/range_formulas.h"
#include "fakequant/core/numerics/detail/sum_formulas.h"

namespace fq::detail {

/// w' = factor * w and b' = bias.
struct FoldedChannel {
  float factor, bias;
};

FQ_HD FoldedChannel folded_channel(double gamma, double beta, double mean, double variance, double eps,
                                   double bias) {
  const double factor = gamma / std::sqrt(variance + eps);
  return {static_cast<float>(factor), static_cast<float>((bias - mean) * factor + beta)};
}

/// The range of folded weights of integers. Those of a silent channel are so small beside the bias that their
/// codes are 0.
struct FoldedRange {
  float amax;
  bool silent;
};

/// A range at or below it is silent: a learned range is not less.
inline constexpr float silent_amax = 0x1p-23f;
/// So is one of whose sums the bias is more than so many steps, near the end of int32.
inline constexpr double silent_steps = 0x1p30;

/// In a silent channel the range is free: such that the code of the bias is a power of two. Then multiplying
/// it rounds nothing, and its value divided by a step is the same as the code times the quotient of steps.
FQ_HD float silent_range(float bias, float bound, float x_scale) {
  const double range = std::fabs(static_cast<double>(bias)) * bound / x_scale;
  double steps = 0x1p16;
  while (steps > 1 && range <= steps * silent_amax) steps /= 2;
  return scalar::max_(static_cast<float>(range / steps), silent_amax);
}

/// `amax` is the range of the weights, of which a scale is fl(amax / bound); `x_scale` that of the input.
FQ_HD FoldedRange folded_range(const FoldedChannel& folded, float amax, float bound, float x_scale) {
  const float range = scalar::mul_(amax, scalar::abs_(folded.factor));
  const double step = static_cast<double>(x_scale) * scalar::range_scale(range, bound, least_amax);
  const bool silent =
      range <= silent_amax || std::fabs(static_cast<double>(folded.bias)) > silent_steps * step;
  return {silent && folded.bias != 0 ? silent_range(folded.bias, bound, x_scale) : range, silent};
}

/// How sums A of the weights as they are are read: fma(fl(A + bias), factor, shift).
struct FoldedSums {
  float factor, shift;
  std::int32_t bias;
};

/// `room` is the largest magnitude of a bias code. NaN where the weights or the bias cease to be numbers.
FQ_HD FoldedSums folded_sums(const FoldedChannel& folded, float amax, float bound, float x_scale,
                             std::int32_t room) {
  const FoldedRange range = folded_range(folded, amax, bound, x_scale);
  if (!is_range(range.amax) || scalar::is_nan_(folded.bias)) return {NAN, NAN, 0};
  const float scale = scalar::mul_(x_scale, scalar::range_scale(range.amax, bound, least_amax));
  const std::int32_t code = bias_code(folded.bias, scale, room);
  if (range.silent) return {0.0f, scalar::dequantize_code(static_cast<float>(code), scale), 0};
  return folded.factor < 0 ? FoldedSums{-scale, 0.0f, -code} : FoldedSums{scale, 0.0f, code};
}

}  // namespace fq::detail
