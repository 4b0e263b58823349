#pragma once

/// Codes on a GPU, of every format and block shape. As core/backend/cpu/codes/codes.h and block_codes.h, with
/// their bits. Outputs are given allocated, in the layout of the inputs; codes in blocks are row-major.
/// Scales lie on the device of the codes.

#include <span>
#include <string>
#include <vector>

#include "fakequant/core/backend/kernels.h"

namespace fq::cuda {

/// The codes' values unscaled, to f32 or bf16.
void decode(const QuantizedTensor& x, Tensor& out);
/// Times their scales, to f32.
void dequantize(const QuantizedTensor& x, Tensor& out);
/// Fills out.codes and, if defined, out.mask of each, on the device of the first, in one launch. A NaN raises
/// the alarm `nan_text`.
void quantize(std::span<const fq::detail::QuantizeCall> calls);
/// Of elements of 2, 4 or 8 bytes; `out` may be `dy`.
void apply_mask(const Tensor& dy, const Tensor& mask, Tensor& out);

}  // namespace fq::cuda
