#pragma once

/// Codes of any format in blocks of any shape, in the layout of their tensor, by the vector loops of
/// element_kernels.h on all threads; those of `codes.h` are for one scale or one axis of 8-bit codes.

#include "fakequant/core/quantized.h"

namespace fq::cpu {

/// Fills out.codes and, if defined, out.mask; true when there was a NaN. `x` f32.
[[nodiscard]] bool quantize_blocks(const Tensor& x, QuantizedTensor& out);
/// The values of codes, times their scales where `scaled`, as f32 or rounded to bf16.
void decode_blocks(const QuantizedTensor& x, bool scaled, Tensor& out);

}  // namespace fq::cpu
