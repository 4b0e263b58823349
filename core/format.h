#pragma once

/// Format: what a code is, an integer or a minifloat.
///
///     Format weights = IntFormat{.bits = 8, .narrow_range = true};  // -127 .. 127
///     Format e4m3 = FloatFormat{4, 3};
///     const float scale = amax / e4m3.bound();                      // amax / 448

#include <string>
#include <variant>

#include "fakequant/core/dtype.h"
#include "fakequant/core/numerics/number_formats.h"

namespace fq {

/// One of the two kinds of numbers that codes are; a small value, compared by its fields.
class Format {
 public:
  Format() = default;  ///< signed 8-bit integers, full range
  /// Throws ArgumentError unless 2 <= bits <= 16.
  Format(IntFormat format);  // NOLINT(google-explicit-constructor): a Format is one of the two
  /// Throws ArgumentError for a format that is not one of E4M3, E5M2, E3M2, E2M3, E2M1.
  Format(FloatFormat format);  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool is_integer() const noexcept { return std::holds_alternative<IntFormat>(value_); }
  /// The alternative; throws ArgumentError when it is the other one.
  [[nodiscard]] const IntFormat& integer() const;
  [[nodiscard]] const FloatFormat& floating() const;
  /// Bits of a code: those of the integer, or sign, exponent and mantissa of the float.
  [[nodiscard]] int bits() const noexcept;
  /// The value that amax maps to: scale = amax / bound.
  [[nodiscard]] float bound() const noexcept;
  /// The smallest code value: lower() of integers, -max() of floats.
  [[nodiscard]] float lower() const noexcept;
  /// The type codes are kept in: i8, u8, i16, i32 (unsigned 16-bit), or the float's storage type
  /// (u8 for E3M2 and E2M3, a code in the low bits).
  [[nodiscard]] DType code_dtype() const;
  friend bool operator==(const Format&, const Format&) = default;

 private:
  std::variant<IntFormat, FloatFormat> value_ = IntFormat{};
};

/// "int8", "uint8", "int4 narrow", "e4m3"
[[nodiscard]] std::string to_string(const Format& format);

}  // namespace fq
