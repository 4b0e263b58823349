#pragma once

/// Format: what a code is, an integer or a minifloat.
///
///     Format weights = IntFormat{.bits = 8, .narrow_range = true};  // -127 .. 127
///     Format e4m3 = FloatFormat{4, 3};
///     const double largest = 3.5, scale = largest / e4m3.bound();  // a step of the grid: 3.5 / 448
///
/// A format says nothing of scales: those follow from a range (Grid::from_amax) and a granularity.

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

  /// Whether codes are integers; else they are minifloats.
  [[nodiscard]] bool is_integer() const noexcept { return std::holds_alternative<IntFormat>(value_); }
  /// The alternative; throws ArgumentError when the format is the other one, so ask `is_integer` first.
  [[nodiscard]] const IntFormat& integer() const;
  [[nodiscard]] const FloatFormat& floating() const;
  /// Bits of a code: those of the integer, or sign, exponent and mantissa of the float together.
  [[nodiscard]] int bits() const noexcept;
  /// The value that amax maps to, scale = amax / bound: 127 for signed 8 bits, 255 for unsigned, 448 for
  /// E4M3, 6 for E2M1.
  [[nodiscard]] float bound() const noexcept;
  /// The smallest code value: -128 for signed 8 bits, -127 where they are narrow, 0 for unsigned, -max for
  /// floats.
  [[nodiscard]] float lower() const noexcept;
  /// The type that codes are kept in while a network runs, one code an element: i8 or u8 up to 8 bits, i16 up
  /// to 16 bits, i32 for unsigned 16 bits. Floats have their storage type (f4_e2m1 is packed, two a byte);
  /// E3M2 and E2M3 are u8, a code in the low bits. `packed_dtype` (core/quantized.h) is the smallest type for
  /// keeping them.
  [[nodiscard]] DType code_dtype() const;
  friend bool operator==(const Format&, const Format&) = default;

 private:
  std::variant<IntFormat, FloatFormat> value_ = IntFormat{};
};

/// "int8", "uint8", "int4 narrow", "e4m3": as summaries and messages print it.
[[nodiscard]] std::string to_string(const Format& format);

}  // namespace fq
