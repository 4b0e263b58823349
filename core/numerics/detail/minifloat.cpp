#include "fakequant/core/numerics/detail/minifloat.h"

#include <bit>
#include <cmath>
#include <limits>

namespace fq {

float FloatFormat::max() const noexcept {
  const int bias = (1 << (exponent - 1)) - 1;
  if (exponent == 5 && mantissa == 2) return 57344.0f;  // IEEE-like: the top exponent is infinity and NaN
  if (exponent == 4 && mantissa == 3) return 448.0f;    // only the all-ones code is NaN
  const auto significand = 2.0f - std::ldexp(1.0f, -mantissa);
  return std::ldexp(significand, (1 << exponent) - 1 - bias);  // MX: no NaN at all
}

namespace {

constexpr int bias(int exponent) { return (1 << (exponent - 1)) - 1; }

Minifloat make(int exponent, int mantissa, float max) {
  return {exponent, mantissa, max, std::ldexp(1.0f, 1 - bias(exponent)), std::ldexp(1.0f, -mantissa)};
}

}  // namespace

Minifloat Minifloat::of(FloatFormat format) noexcept {
  return make(format.exponent, format.mantissa, format.max());
}

// A format without infinity and NaN: the top exponent holds numbers, as in OCP MX.
Minifloat Minifloat::finite(int exponent, int mantissa) noexcept {
  const int top = (1 << exponent) - 1 - bias(exponent);
  return make(exponent, mantissa, std::ldexp(2.0f - std::ldexp(1.0f, -mantissa), top));
}

// ModelOpt and torchao use the logarithm rounded to f32: slightly above a power of two it rounds onto the
// power, and ceil then does not go up.
float log2_rounded(float v) noexcept { return static_cast<float>(std::log2(static_cast<double>(v))); }

float decode_e8m0(std::uint8_t code) noexcept {
  return code == 0xff ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0f, code - 127);
}

}  // namespace fq
