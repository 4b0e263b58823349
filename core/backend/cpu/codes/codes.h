#pragma once

/// Loops over codes on the CPU. Outputs are given allocated, in the layout of the inputs.

#include <span>
#include <string>

#include "fakequant/core/accumulator.h"
#include "fakequant/core/backend/cpu/codes/grid.h"
#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/detail/quantizer_checks.h"

namespace fq::cpu {

/// The codes' values unscaled, to f32; those of 8 bits per tensor or along an axis to bf16 too, exactly.
void decode(const QuantizedTensor& x, Tensor& out);
/// fl(code * scale), to f32; that of blocks rounded to bf16 too.
void dequantize(const QuantizedTensor& x, Tensor& out);
/// Fills out.codes and, if defined, out.mask of each.
void quantize(std::span<const detail::QuantizeCall> calls);
void apply_mask(const Tensor& dy, const Tensor& mask, Tensor& out);

/// The float values of an accumulator of any kind but a concat or a move; with a pending ReLU max(v, 0),
/// and the mask v > 0 when given. The ReLU leaves a NaN for whoever reads it to find.
void accumulator_values(const Accumulator& x, Tensor& out, Tensor* mask);
/// Its codes on a per-tensor integer grid, with the ReLU folded into the clamp, and, if defined, out.mask; of
/// any kind but a concat or a move. Throws NumericError with `nan_text` where batch normalization multiplies
/// by a NaN or adds one.
void accumulator_codes(const Accumulator& x, QuantizedTensor& out, const std::string& nan_text);
/// As fq::bias_codes; `room` is the largest magnitude of a code.
void bias_codes(const Tensor& b, const Tensor& scale, std::int32_t room, const std::string& nan_text,
                Tensor& out);

}  // namespace fq::cpu
