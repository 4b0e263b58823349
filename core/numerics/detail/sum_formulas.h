#pragma once

/// Rounding and values of accumulators, for host and device.

#include <cmath>
#include <cstdint>

#include "fakequant/core/numerics/detail/grid_formulas.h"
#include "fakequant/core/numerics/number_formats.h"

namespace fq::detail {

/// With `relu`, codes are at least 0 and the mask excludes 0.
FQ_HD SumReader sum_reader(const GridRow& row, bool relu) {
  if (!relu) return {row.lower, row.upper, row.mask_lower, row.amax, false};
  return {row.lower < 0 ? 0.0f : row.lower, row.upper, 0.0f, row.amax, true};
}

FQ_HD bool passes(const SumReader& reader, float v) {
  return reader.open ? scalar::mask_open_lower(v, reader.below, reader.amax)
                     : scalar::mask_closed(v, reader.below, reader.amax);
}

FQ_HD AdditionGrid addition_grid(float scale_a, float scale_b, float scale_y, float offset_a, float offset_b,
                                 float offset_y) {
  const float a = scalar::div_(scale_a, scale_y), b = scalar::div_(scale_b, scale_y);
  const float fused =
      scalar::sub_(offset_y, scalar::add_(scalar::mul_(a, offset_a), scalar::mul_(b, offset_b)));
  return {a, b, fused, offset_a, offset_b, offset_y, scale_a, scale_b};
}
FQ_HD float addition_code(float a, float b, const AdditionGrid& grid, const SumReader& reader) {
  return scalar::add_code(a + grid.offset_a, b + grid.offset_b, grid.ratio_a, grid.ratio_b, grid.fused,
                          grid.offset_y, reader.lower, reader.upper);
}
FQ_HD float addition_value(float a, float b, float scale_a, float scale_b) {
  return scalar::add_(scalar::dequantize_code(a, scale_a), scalar::dequantize_code(b, scale_b));
}

/// Factors of the sum of `count` pixels: to its value, and to its position on a grid.
FQ_HD float pooled_scale(float scale, float count) { return scalar::div_(scale, count); }
FQ_HD float pooled_multiplier(float scale, float count, float step) {
  return scalar::div_(scale, scalar::mul_(step, count));
}

/// The largest magnitude of a bias code that fits int32 together with sums of up to `largest_sum`; 0 if
/// there is none.
FQ_HD std::int32_t bias_room(std::int64_t largest_sum) {
  constexpr std::int64_t most = 0x7fffffff;
  return static_cast<std::int32_t>(largest_sum < 0 || largest_sum > most ? 0 : most - largest_sum);
}
/// bq = rne(fl(b / sxw)), limited to `room` in magnitude; 0 for NaN.
FQ_HD std::int32_t bias_code(float bias, float scale, std::int32_t room) {
  const float position = scalar::rint_(scalar::div_(bias, scale));
  if (scalar::is_nan_(position)) return 0;
  const double code = static_cast<double>(position), limit = room;
  return static_cast<std::int32_t>(code < -limit ? -limit : limit < code ? limit : code);
}

}  // namespace fq::detail

// Floats in 64-bit fixed point, on host and device, for sums over ranks.

namespace fq::scalar {

/// x * scale, rounded to nearest even. `scale` is a power of two. The result must fit.
FQ_HD std::int64_t to_fixed(float x, double scale) {
  const double scaled = static_cast<double>(x) * scale;
  return FQ_BY_TARGET(__double2ll_rn(scaled), std::llrint(scaled));
}

/// sum * unit, rounded once to f32. `unit` is a power of two.
FQ_HD float from_fixed(std::int64_t sum, double unit) {
  return static_cast<float>(static_cast<double>(static_cast<float>(sum)) * unit);
}

}  // namespace fq::scalar
