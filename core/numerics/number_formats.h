#pragma once

/// The two kinds of numbers that codes are. Format (core/format.h) is one of them, checked.
///
///     const IntFormat weights{.bits = 4, .narrow_range = true};  // -7 .. 7
///     const FloatFormat e5m2{5, 2};                              // up to 57344

#include <cstdint>

namespace fq {

/// Integers of 2 to 16 bits. The codes are `lower() .. upper()`; `upper()` is also the bound that amax maps
/// to, so that a signed format of full range has one code more below zero than above.
struct IntFormat {
  int bits = 8;               ///< 2 to 16
  bool is_unsigned = false;   ///< codes are 0 and above
  bool narrow_range = false;  ///< leaves out the lowest signed code: -127 .. 127

  /// The least code: -128 for signed 8 bits, -127 where they are narrow, 0 for unsigned.
  [[nodiscard]] std::int32_t lower() const noexcept {
    return is_unsigned ? 0 : -(std::int32_t{1} << (bits - 1)) + (narrow_range ? 1 : 0);
  }
  /// The largest code: 127 for signed 8 bits, 255 for unsigned.
  [[nodiscard]] std::int32_t upper() const noexcept {
    return (std::int32_t{1} << (bits - (is_unsigned ? 0 : 1))) - 1;
  }
  friend bool operator==(const IntFormat&, const IntFormat&) = default;
};

/// Minifloats without infinities, of `exponent` and `mantissa` bits and a sign; (4,3) is OCP E4M3. Values
/// round half to even and saturate at the largest; subnormals are kept.
struct FloatFormat {
  /// Bits of the exponent, and of the mantissa behind the leading one.
  int exponent = 4;
  int mantissa = 3;

  /// The largest finite value: E4M3 gives 448, E5M2 57344, E3M2 28, E2M3 7.5, E2M1 6.
  [[nodiscard]] float max() const noexcept;
  friend bool operator==(const FloatFormat&, const FloatFormat&) = default;
};

}  // namespace fq
