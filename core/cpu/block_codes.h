#pragma once

/// Codes of any format in blocks of any shape; not a public header. Row-major: these are plain loops that the
/// compiler vectorises, those of `codes.h` are for one scale or one axis of 8-bit codes.

#include "fakequant/core/quantized.h"

namespace fq::cpu {

/// Whether codes of this spec are the business of this file. Throws ArgumentError when the spec has not as
/// many scales as the shape has blocks.
[[nodiscard]] bool in_blocks(const QuantSpec& spec, const Shape& shape, std::string_view function);

/// Fills out.codes and, if defined, out.mask; true when there was a NaN. `x` f32, row-major.
[[nodiscard]] bool quantize_blocks(const Tensor& x, QuantizedTensor& out);
/// The values of codes, times their scales where `scaled`.
void decode_blocks(const QuantizedTensor& x, bool scaled, Tensor& out);

}  // namespace fq::cpu
