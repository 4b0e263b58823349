#pragma once

/// Codes of fewer than 8 bits (i2, u2, i4, u4, f4_e2m1): packed, low bits first, or one a byte.

#include "fakequant/core/format.h"
#include "fakequant/core/tensor.h"

namespace fq {

/// Packs codes kept one a byte (i8 or u8; the low bits count) as `dtype`. Same shape and layout. Throws
/// ArgumentError for other types.
[[nodiscard]] Tensor pack_codes(const Tensor& codes, DType dtype);
/// One code a byte: i8, sign extended, of i2 and i4; u8, the bits, of the others. Same shape and layout. Throws
/// ArgumentError for a type of 8 bits or more.
[[nodiscard]] Tensor unpack_codes(const Tensor& packed);

/// The type that codes of that format take the least room in: i2 or u2 for integers of 2 bits, i4 or u4 for 3
/// and 4; for all others that of `Format::code_dtype`.
[[nodiscard]] DType packed_dtype(const Format& format);

}  // namespace fq
