#pragma once

/// Scales of dynamic blocks as ModelOpt's extension finds them (`tensor_quant_mx.cu`): elements are
/// multiplied by `scale`, rounded, and multiplied by `unscale`; for host and device.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "fakequant/core/numerics/detail/formulas.h"
#include "fakequant/core/numerics/detail/grid_numbers.h"

namespace fq::detail {

struct BlockScale {
  float scale = 1, unscale = 1;
};

/// The largest magnitude, NaN left out; 0 for no elements.
FQ_HD float largest_number(const float* x, std::int64_t count) {
  std::int32_t largest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int32_t bits = std::bit_cast<std::int32_t>(x[i]) & 0x7fffffff;
    largest = std::max(largest, bits > 0x7f800000 ? 0 : bits);
  }
  return std::bit_cast<float>(largest);
}

/// 2^exponent, -127 <= exponent <= 127.
FQ_HD float power_of_two(int exponent) {
  return std::bit_cast<float>(exponent == -127 ? 0x00400000u
                                               : static_cast<std::uint32_t>(exponent + 127) << 23);
}

/// Neither 0 nor infinite nor NaN.
FQ_HD bool is_usable(float amax) { return amax != 0 && std::fabs(amax) <= 0x1.fffffep127f; }

/// unscale = 2^e: e the exponent of fl(amax / max), rounded up within -127 .. 127.
FQ_HD BlockScale e8m0_scale(float amax, float max) {
  const float unscale = is_usable(amax) ? scalar::power_of_two_unscale(amax, max) : 1.0f;
  return {1.0f / unscale, unscale};
}

/// unscale = e4m3(1 / fl(max / amax)).
FQ_HD BlockScale e4m3_scale(float amax, float max) {
  const double found = scalar::round_e4m3(static_cast<float>(1.0 / static_cast<double>(max / amax)));
  const double unscale = is_usable(amax) ? found : 1.0;
  return {static_cast<float>(1.0 / unscale), static_cast<float>(unscale)};
}

/// unscale = e4m3(fl(amax / max) * T) / T, T = 448 * fl(max / global).
FQ_HD BlockScale e4m3_scale(float amax, float max, float global) {
  const double level = 448.0 * static_cast<double>(max / global);
  const double found =
      scalar::round_e4m3(static_cast<float>(static_cast<double>(amax / max) * level)) / level;
  const double unscale = is_usable(amax) && is_usable(global) ? found : 1.0;
  return {static_cast<float>(1.0 / unscale), static_cast<float>(unscale)};
}

/// How blocks find theirs, for numbers up to `max`.
struct BlockScales {
  enum class Rule : unsigned char { power_of_two, e4m3, e4m3_of_global };

  Rule rule;
  float max;
  const float* globals = nullptr;  ///< where the blocks are; only of e4m3_of_global
  std::int64_t sharing = 1;        ///< number of consecutive blocks that share one global

  FQ_HD BlockScale operator()(float amax, std::int64_t block) const {
    if (rule == Rule::power_of_two) return power_scale(amax);
    const float most = finite(amax);
    return rule == Rule::e4m3 ? e4m3_scale(most, max) : e4m3_scale(most, max, globals[block / sharing]);
  }
  /// By the first rule.
  FQ_HD BlockScale power_scale(float amax) const { return e8m0_scale(finite(amax), max); }
  FQ_HD static float finite(float amax) { return scalar::min_(amax, 0x1.fffffep127f); }
};

/// y of E3M0 (1 sign, 3 exponent bits), half away from zero.
FQ_HD float e3m0_fake_quant(float x, const BlockScale& s) {
  const float away = scalar::e3m0_magnitude(x * s.scale) * s.unscale;
  return x < 0 ? -away : away;
}

}  // namespace fq::detail
