#pragma once

/// Floats of up to 8 bits: sign, exponent, mantissa, bias 2^(exponent-1) - 1, subnormals, no infinities among
/// the values that rounding gives. OCP OFP8 and MX v1.0 name the ones in use.

#include <bit>
#include <cstdint>
#include <limits>

#include "fakequant/core/format.h"
#include "fakequant/core/formulas.h"

namespace fq {

/// A format as numbers, for loops: the grid is `step * max(2^floor(log2|v|), min_normal)`.
struct Minifloat {
  int exponent;      ///< bits, 1 .. 5
  int mantissa;      ///< bits, 0 .. 3
  float max;         ///< largest finite value
  float min_normal;  ///< 2^(1 - bias)
  float step;        ///< 2^-mantissa

  /// As OCP defines it: E4M3 has 448 and one NaN, E5M2 57344, infinity and NaNs, the others only numbers.
  [[nodiscard]] static Minifloat of(FloatFormat format) noexcept;
  /// Every code is a number: E4M3 reaches 480.
  [[nodiscard]] static Minifloat finite(int exponent, int mantissa) noexcept;

  /// Half to even, saturating; keeps NaN and the sign of zero.
  [[nodiscard]] FQ_HD float round(float v) const noexcept {
    return scalar::round_minifloat(v, max, min_normal, step);
  }
  /// The same grid, saturating one step beyond the largest value: what encodes as E5M2's infinity, E4M3's NaN.
  [[nodiscard]] Minifloat overflowing() const noexcept {
    Minifloat beyond = *this;
    beyond.max += scalar::exponent_(max) * step;
    return beyond;
  }
  /// The code of a value on the grid: sign bit, then exponent, then mantissa, in the low bits. NaN gives all
  /// ones under its sign. Free of branches and conversions, so that loops vectorise.
  [[nodiscard]] FQ_HD std::uint8_t encode(float value) const noexcept {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (word >> 31) << (exponent + mantissa);
    const std::uint32_t ones = (1u << (exponent + mantissa)) - 1u;
    const float magnitude = scalar::abs_(value);
    const bool subnormal = magnitude < min_normal;
    const auto lifted = std::bit_cast<std::uint32_t>(subnormal ? magnitude + min_normal : magnitude);
    const std::uint32_t above = lifted - std::bit_cast<std::uint32_t>(min_normal);
    const std::uint32_t code = (above + (subnormal ? 0u : 1u << 23)) >> (23 - mantissa);
    return static_cast<std::uint8_t>(sign | (scalar::is_nan_(value) ? ones : code));
  }
  /// The value of a code; codes above `max` are infinity (E5M2's first) or NaN.
  [[nodiscard]] FQ_HD float decode(std::uint8_t code) const noexcept;
};

FQ_HD float Minifloat::decode(std::uint8_t code) const noexcept {
  const std::uint32_t magnitude = code & ((1u << (exponent + mantissa)) - 1u);
  const float sign = (code >> (exponent + mantissa) & 1u) != 0 ? -1.0f : 1.0f;
  if (magnitude < (1u << mantissa)) return sign * (static_cast<float>(magnitude) * (min_normal * step));
  const auto value =
      std::bit_cast<float>(((magnitude - (1u << mantissa)) << (23 - mantissa)) + std::bit_cast<std::uint32_t>(min_normal));
  if (value <= max) return sign * value;
  const bool infinite = exponent == 5 && mantissa == 2 && magnitude == 0x7cu;
  return infinite ? sign * std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
}

/// log2 of a positive number, rounded to f32: what lies within 1e-7 of an integer, relative to it, becomes
/// it.
[[nodiscard]] float log2_rounded(float v) noexcept;

/// 2^(code - 127), 255 being NaN: the power-of-two scale of MX formats.
[[nodiscard]] float decode_e8m0(std::uint8_t code) noexcept;
/// The code of 2^exponent, -127 <= exponent <= 127.
[[nodiscard]] constexpr std::uint8_t encode_e8m0(int exponent) noexcept {
  return static_cast<std::uint8_t>(exponent + 127);
}

}  // namespace fq
