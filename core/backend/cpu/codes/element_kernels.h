#pragma once

/// Vector loops over codes of every format, of elements with scales and ranges of their own or shared by
/// runs. `count` is a multiple of `element_group`.

#include <cstdint>

#include "fakequant/core/blocks/detail/block_map.h"
#include "fakequant/core/format.h"
#include "fakequant/core/numerics/number_formats.h"

namespace fq::cpu {

inline constexpr std::int64_t element_group = 64;

/// What the elements have in common: numbers, for sources that are compiled once a target.
struct ElementFormat {
  bool integer, is_unsigned;
  float lower, bound;           ///< of integers
  float max, min_normal, step;  ///< of floats, as a Minifloat has them
  int exponent, mantissa;
  bool inverse;
  DType dtype;  ///< of the codes; those of four bits are a byte each here
};
/// `inverse`: numbers to quantize by are those of 1 / scale, of scales that are powers of two: then they give
/// the quotient by one multiplication, exactly. Of float formats.
[[nodiscard]] ElementFormat element_format(const Format& format, bool inverse = false);

/// The numbers of the elements, that of element i at [index.at(first + i)]. Vectors of 16 elements that
/// begin at a multiple of 16 share one, or have 16 that follow each other.
struct ElementNumbers {
  const float *scale, *amax;
  std::int64_t first;
  detail::NumberIndex index;
};
inline constexpr detail::NumberIndex one_each{62, 0, -1}, one_for_all{62, 0, 0};

/// codes[i] = q(x[i]) on the grid of its scale and amax; the bits of `mask`, which may be null, those of
/// mask_closed. A NaN has code 0 and mask 0; whether there was one.
[[nodiscard]] bool quantize_elements(const float* x, const ElementNumbers& numbers, std::int64_t count,
                                     const ElementFormat& format, void* codes, std::uint8_t* mask);
/// The same to E2M1, as `pack_nibbles` packs codes; `inverse` as of an ElementFormat.
[[nodiscard]] bool quantize_e2m1(const float* x, const ElementNumbers& numbers, std::int64_t count,
                                 bool inverse, std::uint8_t* packed, std::uint8_t* mask);
/// y[i] = fl(number of codes[i] * scale[i]); in bf16 that is rounded once more.
void decode_elements(const void* codes, const ElementNumbers& numbers, std::int64_t count,
                     const ElementFormat& format, float* y);
void decode_elements(const void* codes, const ElementNumbers& numbers, std::int64_t count,
                     const ElementFormat& format, bfloat16* y);
void decode_e2m1(const std::uint8_t* packed, const ElementNumbers& numbers, std::int64_t count, float* y);
void decode_e2m1(const std::uint8_t* packed, const ElementNumbers& numbers, std::int64_t count, bfloat16* y);
/// Two codes of four bits a byte, the first in the low bits; and back.
void pack_nibbles(const std::uint8_t* codes, std::int64_t count, std::uint8_t* packed);
void unpack_nibbles(const std::uint8_t* packed, std::int64_t count, std::uint8_t* codes);

}  // namespace fq::cpu
