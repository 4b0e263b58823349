#pragma once

/// The numbers of one scale of a quantizer, for host and device; not a public header.

#include <bit>
#include <cstdint>
#include <limits>

#include "fakequant/core/format.h"
#include "fakequant/core/formulas.h"
#include "fakequant/core/grid_numbers.h"

namespace fq::detail {

/// A range at or below it is that of zeros only.
inline constexpr float least_amax = 0x1p-24f;

/// What all scales of a format have in common.
struct GridFormat {
  float lower, bound;
  bool integer, is_unsigned;

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

/// What an element adds to the gradient of its range, before dy: as clip has it, and as LSQ.
FQ_HD float clip_share(float x, const GridRow& row) {
  if (x >= row.amax) return 1.0f;
  return row.mask_lower < 0 && x <= row.mask_lower ? -1.0f : 0.0f;
}
FQ_HD float lsq_share(float x, float code, const GridRow& row) {
  return scalar::mask_closed(x, row.mask_lower, row.amax) ? code - x / row.scale : code;
}

/// Finite and not negative.
FQ_HD bool is_range(float amax) { return amax >= 0 && amax <= std::numeric_limits<float>::max(); }

/// The smallest power of two not below v >= 0, or its neighbour that E8M0 has.
FQ_HD float power_of_two(float v) {
  const std::uint32_t above = (std::bit_cast<std::uint32_t>(v) + 0x7fffffu) & 0x7f800000u;
  if (v <= 0x1p-127f) return 0x1p-127f;
  return std::bit_cast<float>(above < 0x7f000000u ? above : 0x7f000000u);
}

/// The range whose mask is open, but that of zeros only.
FQ_HD float open_range(float amax) { return amax <= least_amax ? amax : std::numeric_limits<float>::max(); }

/// The scale that a range gives, and the range that goes with it.
struct RangeScale {
  float amax, scale;
};

/// As QuantSpec::from_amax has it.
struct FromAmax {
  GridFormat format;
  bool pow2;

  FQ_HD RangeScale operator()(float amax) const {
    const float small = format.integer ? least_amax : 1.0f;
    const float scale = (amax <= least_amax ? small : amax) / format.bound;
    if (!pow2) return {amax, scale};
    const float raised = power_of_two(scale);
    return {amax > least_amax ? raised * format.bound : amax, raised};
  }
};

/// As QuantSpec::with_scale_bits has it, (4,3) or else (8,0).
struct OfScaleBits {
  GridFormat format;
  bool e4m3;
  float unit;

  FQ_HD RangeScale operator()(float amax) const {
    const float exact = amax / format.bound;
    const float scale =
        e4m3 ? scalar::max_(scalar::round_e4m3(exact / unit), 0x1p-9f) * unit : power_of_two(exact);
    return {scalar::max_(scale * format.bound, amax), scale};
  }
};

}  // namespace fq::detail
