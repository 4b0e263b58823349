#pragma once

/// Vector loops over codes of every format, with one scale and range per element or per run of elements.
/// `count` is a multiple of `element_group`.

#include <cstdint>

#include "fakequant/core/blocks/detail/block_map.h"
#include "fakequant/core/format.h"
#include "fakequant/core/numerics/number_formats.h"

namespace fq::cpu {

inline constexpr std::int64_t element_group = 64;

/// Common properties of the elements, as plain numbers for sources that are compiled once per target.
struct ElementFormat {
  bool integer, is_unsigned;
  float lower, bound;           ///< for integers
  float max, min_normal, step;  ///< for floats, as in Minifloat
  int exponent, mantissa;
  bool inverse;
  DType dtype;  ///< dtype of the codes; four-bit codes take one byte each here
};
/// Returns the format. With `inverse`, for float formats with power-of-two scales, the given numbers are 1 /
/// scale: one multiplication then gives the exact quotient.
[[nodiscard]] ElementFormat element_format(const Format& format, bool inverse = false);

/// Numbers of the elements: element i uses index.at(first + i). Each vector of 16 elements that begins at a
/// multiple of 16 shares one number, or has 16 consecutive numbers.
struct ElementNumbers {
  const float *scale, *amax;
  std::int64_t first;
  detail::NumberIndex index;
};
inline constexpr detail::NumberIndex one_each{62, 0, -1}, one_for_all{62, 0, 0};

/// Sets codes[i] = q(x[i]) on the grid of its scale and amax, and the bits of `mask`, which may be null, to
/// mask_closed. NaN gets code 0 and mask 0. Returns whether there was a NaN.
[[nodiscard]] bool quantize_elements(const float* x, const ElementNumbers& numbers, std::int64_t count,
                                     const ElementFormat& format, void* codes, std::uint8_t* mask);
/// Quantizes to E2M1, packed as in `pack_nibbles`. `inverse` has the meaning of ElementFormat::inverse.
[[nodiscard]] bool quantize_e2m1(const float* x, const ElementNumbers& numbers, std::int64_t count,
                                 bool inverse, std::uint8_t* packed, std::uint8_t* mask);
/// Computes y[i] = fl(number of codes[i] * scale[i]), rounded again to bf16 in the second overload.
void decode_elements(const void* codes, const ElementNumbers& numbers, std::int64_t count,
                     const ElementFormat& format, float* y);
void decode_elements(const void* codes, const ElementNumbers& numbers, std::int64_t count,
                     const ElementFormat& format, bfloat16* y);
void decode_e2m1(const std::uint8_t* packed, const ElementNumbers& numbers, std::int64_t count, float* y);
void decode_e2m1(const std::uint8_t* packed, const ElementNumbers& numbers, std::int64_t count, bfloat16* y);
/// Packs two four-bit codes into a byte, the first in the low bits. `unpack_nibbles` is the inverse.
void pack_nibbles(const std::uint8_t* codes, std::int64_t count, std::uint8_t* packed);
void unpack_nibbles(const std::uint8_t* packed, std::int64_t count, std::uint8_t* codes);

}  // namespace fq::cpu
