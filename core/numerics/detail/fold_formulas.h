#pragma once

/// Folds batch normalization with fixed statistics into the preceding layer, channel by channel, for host
/// and device. Computes the folded weights, and factors for the sums of the original weights that give the
/// bits of the folded layer.

#include <cmath>

#include "fakequant/core/numerics/detail/range_formulas.h"
#include "fakequant/core/numerics/detail/sum_formulas.h"

namespace fq::detail {

/// Folded channel: w' = factor * w and b' = bias.
struct FoldedChannel {
  float factor, bias;
};

FQ_HD FoldedChannel folded_channel(double gamma, double beta, double mean, double variance, double eps,
                                   double bias) {
  const double factor = gamma / std::sqrt(variance + eps);
  return {static_cast<float>(factor), static_cast<float>((bias - mean) * factor + beta)};
}

/// Range of folded integer weights. A channel is silent if its weights are so small relative to the bias
/// that their codes are 0.
struct FoldedRange {
  float amax;
  bool silent;
};

/// Channels with a range up to this one are silent. Learned ranges are never smaller.
inline constexpr float silent_amax = 0x1p-23f;
/// Channels whose bias exceeds this number of steps of the sums, near the end of int32, are also silent.
inline constexpr double silent_steps = 0x1p30;

/// Returns the range of a silent channel, which can be chosen freely. It makes the code of the bias a power
/// of two. Products with this code are then exact, and its value divided by a step equals the code times the
/// quotient of the steps.
FQ_HD float silent_range(float bias, float bound, float x_scale) {
  const double range = std::fabs(static_cast<double>(bias)) * bound / x_scale;
  double steps = 0x1p16;
  while (steps > 1 && range <= steps * silent_amax) steps /= 2;
  return scalar::max_(static_cast<float>(range / steps), silent_amax);
}

/// `amax` is the range of the weights, with scale fl(amax / bound); `x_scale` is the scale of the input.
FQ_HD FoldedRange folded_range(const FoldedChannel& folded, float amax, float bound, float x_scale) {
  const float range = scalar::mul_(amax, scalar::abs_(folded.factor));
  const double step = static_cast<double>(x_scale) * scalar::range_scale(range, bound, least_amax);
  const bool silent =
      range <= silent_amax || std::fabs(static_cast<double>(folded.bias)) > silent_steps * step;
  return {silent && folded.bias != 0 ? silent_range(folded.bias, bound, x_scale) : range, silent};
}

/// Parameters for the sums A of the original weights: the value is fma(fl(A + bias), factor, shift).
struct FoldedSums {
  float factor, shift;
  std::int32_t bias;
};

/// `room` is the largest magnitude of a bias code. The result is NaN if a weight or bias becomes infinite or
/// NaN.
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
