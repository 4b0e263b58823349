#pragma once

/// The parameters for one scale of a quantizer, for host and device.

#include <bit>
#include <cstdint>
#include <limits>

#include "fakequant/core/numerics/detail/formulas.h"
#include "fakequant/core/numerics/detail/grid_numbers.h"

namespace fq::detail {

/// Properties that all scales of a format share.
struct GridFormat {
  float lower, bound;
  bool integer, is_unsigned;

  template <class Format>  // fq::Format, a header of a higher layer
  [[nodiscard]] static GridFormat of(const Format& format) {
    const bool integer = format.is_integer();
    return {format.lower(), format.bound(), integer, integer && format.integer().is_unsigned};
  }
};

FQ_HD GridRow grid_row(const GridFormat& format, float scale, float amax) {
  const bool dead = format.integer && amax <= least_amax;
  return {scale, dead ? 0.0f : format.lower, dead ? 0.0f : format.bound, amax,
          format.is_unsigned ? 0.0f : -amax};
}

/// Contribution of an element to the gradient of its range, before the factor dy: for clip and for LSQ.
FQ_HD float clip_share(float x, const GridRow& row) {
  return scalar::clip_share(x, row.mask_lower, row.amax);
}
FQ_HD float lsq_share(float x, float code, const GridRow& row) {
  return scalar::lsq_share(x, code, row.scale, row.mask_lower, row.amax);
}

/// Whether the range is finite and not negative.
FQ_HD bool is_range(float amax) { return amax >= 0 && amax <= std::numeric_limits<float>::max(); }

/// Returns a range whose mask passes everything, unless the range is zero.
FQ_HD float open_range(float amax) { return amax <= least_amax ? amax : std::numeric_limits<float>::max(); }

/// The scale of a range, and the range adjusted to this scale.
struct RangeScale {
  float amax, scale;
};

FQ_HD RangeScale range_and_scale(const ScaleRule& rule, float amax) {
  using Kind = ScaleRule::Kind;
  if (rule.kind == Kind::exact || rule.kind == Kind::raised) {
    const float scale = scalar::range_scale(amax, rule.bound, rule.least);
    if (rule.kind == Kind::exact) return {amax, scale};
    const float raised = scalar::power_of_two(scale);
    return {scalar::raised_range(amax, raised, rule.bound), raised};
  }
  const float scale = rule.kind == Kind::e4m3 ? scalar::e4m3_scale(amax, rule.bound, rule.unit)
                                              : scalar::e8m0_scale(amax, rule.bound);
  return {scalar::held_range(amax, scale, rule.bound), scale};
}

}  // namespace fq::detail
