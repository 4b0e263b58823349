#pragma once

/// Loops over codes on the CPU; not a public header. Outputs are given allocated, in the layout of the
/// inputs.

#include "fakequant/core/accumulator.h"
#include "fakequant/core/cpu/grid.h"

namespace fq::cpu {

/// The codes' values unscaled, to f32 or bf16 (codes of 8 bits, exact).
void decode(const Tensor& codes, Tensor& out);
void decode_bf16(const Tensor& codes, Tensor& out);
void dequantize(const QuantizedTensor& x, Tensor& out);
/// Fills out.codes and, if defined, out.mask; true when there was a NaN.
[[nodiscard]] bool quantize(const Tensor& x, int axis, QuantizedTensor& out);
void apply_mask(const Tensor& dy, const Tensor& mask, Tensor& out);

/// The float values of an accumulator of any kind but a concat or a move; with a pending ReLU max(v, 0),
/// and the mask v > 0 when given.
void accumulator_values(const Accumulator& x, Tensor& out, Tensor* mask);
/// Its codes on a per-tensor integer grid, with the ReLU folded into the clamp, and, if defined, out.mask; of
/// any kind but a concat or a move.
void accumulator_codes(const Accumulator& x, const QuantSpec& spec, QuantizedTensor& out);
/// v = max(v, 0) in place, with the mask v > 0.
void relu_values(Tensor& values, Tensor* mask);

}  // namespace fq::cpu
