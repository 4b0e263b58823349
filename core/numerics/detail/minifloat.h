#pragma once

/// Floats of up to 8 bits: sign, exponent, mantissa, bias 2^(exponent-1) - 1, with subnormals. Rounding
/// never returns infinity. OCP OFP8 and MX v1.0 define the formats in use.

#include <bit>
#include <cstdint>
#include <limits>

#include "fakequant/core/numerics/detail/formulas.h"
#include "fakequant/core/numerics/number_formats.h"

namespace fq {

/// A format as numbers for loops: the grid is `step * max(2^floor(log2|v|), min_normal)`.
struct Minifloat {
  int exponent;      ///< bits, 1 .. 5
  int mantissa;      ///< bits, 0 .. 3
  float max;         ///< largest finite value
  float min_normal;  ///< 2^(1 - bias)
  float step;        ///< 2^-mantissa

  /// The OCP definition: E4M3 has 448 and one NaN, E5M2 has 57344, infinity and NaNs, the others have only
  /// numbers.
  [[nodiscard]] static Minifloat of(FloatFormat format) noexcept;
  /// A format without NaN and infinity: every code is a number, and E4M3 reaches 480.
  [[nodiscard]] static Minifloat finite(int exponent, int mantissa) noexcept;

  /// Rounds half to even and saturates; keeps NaN and the sign of zero.
  [[nodiscard]] FQ_HD float round(float v) const noexcept {
    return scalar::round_minifloat(v, max, min_normal, step);
  }
  /// Returns the same grid with saturation one step beyond the largest value. This step encodes as infinity
  /// in E5M2 and as NaN in E4M3.
  [[nodiscard]] Minifloat overflowing() const noexcept {
    Minifloat beyond = *this;
    beyond.max += scalar::exponent_(max) * step;
    return beyond;
  }
  /// Returns the code of a value on the grid: sign bit, then exponent, then mantissa, in the low bits. A NaN
  /// has all ones after its sign. Contains no branches and conversions, so that loops vectorize.
  [[nodiscard]] FQ_HD std::uint8_t encode(float value) const noexcept {
    const bool nan = scalar::is_nan_(value);
    const std::uint32_t ones = nan ? (1u << (exponent + mantissa)) - 1u : 0u;
    const float number = scalar::select_(nan, scalar::copysign_(0.0f, value), value);
    return static_cast<std::uint8_t>(ones | scalar::minifloat_code(number, min_normal, exponent, mantissa));
  }
  /// Returns the value that the code of infinity would have as a number; 0 if the format has no infinity.
  [[nodiscard]] FQ_HD float infinity() const noexcept {
    return exponent == 5 && mantissa == 2 && max == 57344.0f ? 65536.0f : 0.0f;
  }
  /// Returns the value of a code. Codes above `max` are infinity (the first one of E5M2) or NaN.
  [[nodiscard]] FQ_HD float decode(std::uint8_t code) const noexcept;
};

FQ_HD float Minifloat::decode(std::uint8_t code) const noexcept {
  return scalar::minifloat_value(std::uint32_t{code}, 0.0f, max, infinity(), min_normal, step, exponent,
                                 mantissa);
}

/// Returns log2 of a positive number, rounded to f32. Results within a relative distance of 1e-7 from an
/// integer become that integer.
[[nodiscard]] float log2_rounded(float v) noexcept;

/// Returns 2^(code - 127), or NaN for 255: the power-of-two scale of MX formats.
[[nodiscard]] float decode_e8m0(std::uint8_t code) noexcept;
/// Returns the code of 2^exponent, -127 <= exponent <= 127.
[[nodiscard]] constexpr std::uint8_t encode_e8m0(int exponent) noexcept {
  return static_cast<std::uint8_t>(exponent + 127);
}

}  // namespace fq
