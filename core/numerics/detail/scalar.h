#pragma once

/// The primitives of the formulas for one float; plain arithmetic also for one double. Every operation is
/// rounded once, to nearest even, and never contracted. `formulas-inl.h` calls them unqualified.

#include <bit>
#include <cmath>
#include <cstdint>

#include "fakequant/core/numerics/number_formats.h"

namespace fq::scalar {

FQ_HD float constant_(float, float value) { return value; }
FQ_HD float add_(float a, float b) { return a + b; }
FQ_HD float sub_(float a, float b) { return a - b; }
FQ_HD float mul_(float a, float b) { return a * b; }
FQ_HD float div_(float a, float b) { return a / b; }
FQ_HD float sqrt_(float a) { return std::sqrt(a); }
FQ_HD double add_(double a, double b) { return a + b; }
FQ_HD double sub_(double a, double b) { return a - b; }
FQ_HD double mul_(double a, double b) { return a * b; }
FQ_HD double div_(double a, double b) { return a / b; }
FQ_HD double sqrt_(double a) { return std::sqrt(a); }
FQ_HD float fma_(float a, float b, float c) { return std::fma(a, b, c); }
FQ_HD float fms_(float a, float b, float c) { return std::fma(a, b, -c); }
FQ_HD float fnma_(float a, float b, float c) { return std::fma(-a, b, c); }
/// fl(fl(a + p) - p), p = b*c. For exact products, so that fusing changes nothing.
FQ_HD float snap_(float a, float b, float c) { return (a + b * c) - b * c; }
FQ_HD float abs_(float a) { return std::fabs(a); }
FQ_HD float copysign_(float magnitude, float sign) { return std::copysign(magnitude, sign); }
/// Returns a, negated if the sign bit of b is set.
FQ_HD float flip_(float a, float b) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(a) ^
                              (std::bit_cast<std::uint32_t>(b) & 0x80000000u));
}
/// Returns the second operand if either is NaN, like min and max of the hardware.
FQ_HD float min_(float a, float b) { return a < b ? a : b; }
FQ_HD float max_(float a, float b) { return a > b ? a : b; }
FQ_HD bool less_(float a, float b) { return a < b; }
FQ_HD bool less_equal_(float a, float b) { return a <= b; }
FQ_HD bool is_nan_(float a) { return a != a; }
FQ_HD bool and_(bool a, bool b) { return a && b; }
FQ_HD float select_(bool condition, float yes, float no) { return condition ? yes : no; }
/// Rounds by additions, without calls, so that loops vectorize.
FQ_HD float rint_by_adding(float a) {
  const float magnitude = abs_(a);
  const float rounded = (magnitude + 0x1p23f) - 0x1p23f;
  return magnitude < 0x1p23f ? copysign_(rounded, a) : a;
}
/// Rounds half to even and keeps the sign of zero.
FQ_HD float rint_(float a) { return FQ_BY_TARGET(::rintf(a), rint_by_adding(a)); }
/// Rounds towards zero, for |a| < 2^31.
FQ_HD float trunc_(float a) { return static_cast<float>(static_cast<std::int32_t>(a)); }
/// The largest power of two not above |a|; 0 for subnormals and zero, infinity for infinity and NaN.
FQ_HD float exponent_(float a) { return std::bit_cast<float>(std::bit_cast<std::uint32_t>(a) & 0x7f800000u); }

// ---- bit patterns of floats, for minifloat codes ----

FQ_HD std::uint32_t words_(float a) { return std::bit_cast<std::uint32_t>(a); }
FQ_HD float float_bits_(std::uint32_t w) { return std::bit_cast<float>(w); }
/// Converts a number below 2^24 to a float.
FQ_HD float to_float_(std::uint32_t w) { return static_cast<float>(w); }
FQ_HD std::uint32_t add_words_(std::uint32_t a, std::uint32_t b) { return a + b; }
FQ_HD std::uint32_t sub_words_(std::uint32_t a, std::uint32_t b) { return a - b; }
FQ_HD std::uint32_t or_words_(std::uint32_t a, std::uint32_t b) { return a | b; }
FQ_HD std::uint32_t and_words_(std::uint32_t a, std::uint32_t b) { return a & b; }
FQ_HD std::uint32_t word_like_(std::uint32_t, std::uint32_t value) { return value; }
FQ_HD std::uint32_t shift_left_(std::uint32_t w, int bits) { return w << bits; }
FQ_HD std::uint32_t shift_right_(std::uint32_t w, int bits) { return w >> bits; }

}  // namespace fq::scalar
