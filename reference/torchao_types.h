#pragma once

/// What torchao's affine functions are told: integer types of any width, mappings, domains of a zero point.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "fakequant/core/dtype.h"

namespace fq::torchao {

/// torch's integer types: 1 to 8 bits, signed or not, and signed of 16 and 32.
struct IntegerType {
  int bits = 8;
  bool is_unsigned = false;

  /// "int8", "uint4", .. Throws ArgumentError for a type torchao does not know.
  [[nodiscard]] static IntegerType named(std::string_view name);
  [[nodiscard]] std::int64_t lower() const noexcept {
    return is_unsigned ? 0 : -(std::int64_t{1} << (bits - 1));
  }
  [[nodiscard]] std::int64_t upper() const noexcept {
    return (std::int64_t{1} << (bits - (is_unsigned ? 0 : 1))) - 1;
  }
  [[nodiscard]] std::string name() const;
  friend bool operator==(const IntegerType&, const IntegerType&) = default;
};

/// The codes in use; what is not given is the bound of the type.
struct CodeRange {
  std::optional<std::int64_t> quant_min = {}, quant_max = {};
};

/// How a range of values becomes a range of codes.
enum class MappingType : unsigned char {
  symmetric,                  ///< the larger magnitude decides for both sides
  symmetric_no_clipping_err,  ///< the scale that clips neither side
  asymmetric,                 ///< the lowest value becomes the lowest code
};
/// Where the zero point lives.
enum class ZeroPointDomain : unsigned char {
  integer,   ///< a code: q = rne(x / s) + z
  floating,  ///< a value: the one of the middle code
  none,      ///< there is none: q = rne(x / s)
};
/// "SYMMETRIC", "SYMMETRIC_NO_CLIPPING_ERR", "ASYMMETRIC". Throws ArgumentError for another name.
[[nodiscard]] MappingType mapping_type(std::string_view name);
/// "INT", "FLOAT", "NONE". Throws ArgumentError for another name.
[[nodiscard]] ZeroPointDomain zero_point_domain(std::string_view name);

}  // namespace fq::torchao
