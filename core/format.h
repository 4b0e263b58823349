#pragma once

/// Number formats of codes, and the block shape that says which elements share a scale.

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "fakequant/core/dtype.h"
#include "fakequant/core/shape.h"

namespace fq {

/// Integers of 2 to 16 bits. `lower() .. upper()` are the codes; `upper()` is also the bound that amax maps
/// to.
struct IntFormat {
  int bits = 8;
  bool is_unsigned = false;
  bool narrow_range = false;  ///< leaves out the lowest signed code: -127 .. 127

  [[nodiscard]] std::int32_t lower() const noexcept {
    return is_unsigned ? 0 : -(std::int32_t{1} << (bits - 1)) + (narrow_range ? 1 : 0);
  }
  [[nodiscard]] std::int32_t upper() const noexcept {
    return (std::int32_t{1} << (bits - (is_unsigned ? 0 : 1))) - 1;
  }
  friend bool operator==(const IntFormat&, const IntFormat&) = default;
};

/// Minifloats without infinities, of `exponent` and `mantissa` bits and a sign; (4,3) is OCP E4M3, largest
/// value 448.
struct FloatFormat {
  int exponent = 4;
  int mantissa = 3;

  /// The largest finite value. E4M3 gives 448, E5M2 57344, E2M1 6.
  [[nodiscard]] float max() const noexcept;
  friend bool operator==(const FloatFormat&, const FloatFormat&) = default;
};

/// What a code is.
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

/// Which elements share a scale: how many along each axis. One concept for per tensor, per axis, per group
/// and 2-D.
class Granularity {
 public:
  static constexpr std::int64_t whole = -1;  ///< a block as long as its axis

  /// One scale for everything.
  Granularity() = default;
  [[nodiscard]] static Granularity per_tensor() { return {}; }
  /// One scale for each index of the kept axes; negative ones count from the back.
  [[nodiscard]] static Granularity per_axis(std::vector<int> axes);
  [[nodiscard]] static Granularity per_axis(int axis) { return per_axis(std::vector<int>{axis}); }
  /// One scale for every `length` elements along `axis`, of every row of the other axes.
  [[nodiscard]] static Granularity per_group(std::int64_t length, int axis = -1);
  /// One scale for each block of these lengths; axes not named have blocks of 1.
  [[nodiscard]] static Granularity blocks(const std::map<int, std::int64_t>& lengths);
  /// One scale for each block of rows x columns of the last two axes.
  [[nodiscard]] static Granularity blocks_2d(std::int64_t rows, std::int64_t columns);

  [[nodiscard]] bool is_per_tensor() const noexcept { return lengths_.empty() && rest_ == whole; }
  /// The one kept axis of a per-axis granularity of a tensor of that rank; -1 for any other granularity.
  [[nodiscard]] int single_axis(int rank) const;
  /// Elements along each axis that share a scale. Throws ArgumentError when an axis is not one of the
  /// tensor's.
  [[nodiscard]] Shape block_shape(const Shape& tensor) const;
  /// Scales along each axis: ceil(size / block).
  [[nodiscard]] Shape scale_shape(const Shape& tensor) const;
  friend bool operator==(const Granularity&, const Granularity&) = default;
  friend std::string to_string(const Granularity& granularity);

 private:
  std::vector<std::pair<int, std::int64_t>> lengths_;  // axis -> length, sorted
  std::int64_t rest_ = whole;                          // length along every other axis
};

/// "per tensor", "per axis 0", "per axis 0, 2", "in blocks of 16 on axis 1"
[[nodiscard]] std::string to_string(const Granularity& granularity);

}  // namespace fq
