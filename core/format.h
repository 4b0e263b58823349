#pragma once

/// Format: the number format of codes, an integer or a minifloat.
///
///     Format weights = IntFormat{.bits = 8, .narrow_range = true};  // -127 .. 127
///     Format e4m3 = FloatFormat{4, 3};
///     const double largest = 3.5, scale = largest / e4m3.bound();  // a step of the grid: 3.5 / 448
///
/// A format has no scale. Scales follow from a range (Grid::from_amax) and a granularity.

#include <string>
#include <variant>

#include "fakequant/core/dtype.h"
#include "fakequant/core/numerics/number_formats.h"

namespace fq {

/// Number format of codes: integer or minifloat. A small value type, compared by its fields.
class Format {
 public:
  Format() = default;  ///< signed 8-bit integers, full range
  /// Throws ArgumentError unless 2 <= bits <= 16.
  Format(IntFormat format);  // NOLINT(google-explicit-constructor): a Format is one of the two
  /// Throws ArgumentError for a format that is not one of E4M3, E5M2, E3M2, E2M3, E2M1.
  Format(FloatFormat format);  // NOLINT(google-explicit-constructor)

  /// Whether codes are integers. Otherwise they are minifloats.
  [[nodiscard]] bool is_integer() const noexcept { return std::holds_alternative<IntFormat>(value_); }
  /// Returns the format as its own type. Throws ArgumentError if the format is of the other kind; test
  /// `is_integer` first.
  [[nodiscard]] const IntFormat& integer() const;
  [[nodiscard]] const FloatFormat& floating() const;
  /// Bits per code: the integer's bits, or the sum of sign, exponent and mantissa bits.
  [[nodiscard]] int bits() const noexcept;
  /// The code value of amax (scale = amax / bound): 127 for signed 8 bits, 255 for unsigned 8 bits, 448 for
  /// E4M3, 6 for E2M1.
  [[nodiscard]] float bound() const noexcept;
  /// The smallest code value: -128 for signed 8 bits, -127 with narrow_range, 0 for unsigned, -max for
  /// floats.
  [[nodiscard]] float lower() const noexcept;
  /// Type of codes during computation, one code per element: i8 or u8 up to 8 bits, i16 up to 16 bits, i32
  /// for unsigned 16 bits. Floats use their storage type (f4_e2m1 is packed, two codes per byte). E3M2 and
  /// E2M3 are u8 with the code in the low bits. `packed_dtype` (core/quantized.h) returns the smallest type
  /// for storage.
  [[nodiscard]] DType code_dtype() const;
  friend bool operator==(const Format&, const Format&) = default;

 private:
  std::variant<IntFormat, FloatFormat> value_ = IntFormat{};
};

/// Text for summaries and messages: "int8", "uint8", "int4 narrow", "e4m3".
[[nodiscard]] std::string to_string(const Format& format);

}  // namespace fq
