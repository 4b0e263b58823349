#pragma once

/// torchao's granularities: which elements share a scale, said as the shape of a block.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "fakequant/core/blocks/granularity.h"
#include "fakequant/core/dtype.h"

namespace fq::torchao {

/// One scale for everything.
struct PerTensor {};
/// One scale for each index of the axis, negative from the back.
struct PerAxis {
  int axis;
};
/// Groups of `group_size` along the last axis.
struct PerGroup {
  std::int64_t group_size;
};
/// One scale for each row of the last axis.
struct PerRow {};
/// As PerRow: a token is a row of features.
struct PerToken {};
/// One scale for each block of these sizes, one size an axis.
struct PerBlock {
  Shape block_size;
};
/// Which elements share a scale.
using Granularity = std::variant<PerTensor, PerAxis, PerGroup, PerRow, PerToken, PerBlock>;

/// How many elements along each axis share a scale. Throws ArgumentError for an axis that is not there, a
/// block of another rank, or one that does not divide the shape.
[[nodiscard]] Shape get_block_size(const Shape& input_shape, const Granularity& granularity);
/// How many scales there are along each axis. Throws ArgumentError, in the name of `function`, for a block of
/// another rank or one that does not divide the shape; one as long as its axis always does.
[[nodiscard]] Shape scale_shape(const Shape& input_shape, const Shape& block_size,
                                std::string_view function = "torchao.get_block_size");

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
