#pragma once

/// Loops over codes on the CPU; not a public header. Outputs are given allocated, in the layout of the
/// inputs.

#include "fakequant/core/accumulator.h"
#include "fakequant/core/cpu/grid.h"

namespace fq::cpu {

void decode(const Tensor& codes, Tensor& out);
void dequantize(const QuantizedTensor& x, Tensor& out);
/// Fills out.codes and, if defined, out.mask; true when there was a NaN.
[[nodiscard]] bool quantize(const Tensor& x, int axis, QuantizedTensor& out);
void apply_mask(const Tensor& dy, const Tensor& mask, Tensor& out);

/// The float values of an accumulator of any kind but a concat, without its ReLU.
void accumulator_values(const Accumulator& x, Tensor& out);
/// Its codes on a per-tensor integer grid, with the ReLU folded into the clamp; true when out.mask was filled
/// too.
[[nodiscard]] bool accumulator_codes(const Accumulator& x, const QuantSpec& spec, QuantizedTensor& out);
/// v = max(v, 0) in place, with the mask v > 0.
void relu_values(Tensor& values, Tensor* mask);
/// Mask of a reader with lower bound `row.mask_lower`, open at 0 after a ReLU.
void range_mask(const Tensor& values, const GridRow& row, bool relu, Tensor& mask);

}  // namespace fq::cpu
