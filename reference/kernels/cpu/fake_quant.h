#pragma once

/// Fake quantization of tensors by ModelOpt's formulas, one pass from memory to memory.
///
/// Common to all: x is f32, f16 or bf16, of any layout; y has its shape, type and layout and may be x; mask
/// is null or u1 of the same shape and layout. `amax` is f32, row-major, and broadcasts against x by NumPy's
/// rule (ArgumentError where it does not). `bound`, of amax's shape, is what |x| is compared with for the
/// mask.

#include "fakequant/core/format.h"
#include "fakequant/core/tensor.h"

namespace fq::cpu {

void fake_quant_integer(const Tensor& x, const Tensor& amax, const Tensor& bound, const IntFormat& format,
                        Tensor& y, Tensor* mask);
/// The codes alone; x and codes are f32, row-major.
void integer_codes(const Tensor& x, const Tensor& amax, const IntFormat& format, Tensor& codes);
/// Without amax y = e4m3(x), and the mask is 1 but for NaN.
void fake_quant_e4m3(const Tensor& x, const Tensor& amax, const Tensor& bound, Tensor& y, Tensor* mask);
/// y = clamp(rne(x)); the mask is lower <= x <= upper.
void round_to_integers(const Tensor& x, float lower, float upper, Tensor& y, Tensor* mask);

/// The smallest element, NaN where there is one; infinity without elements.
[[nodiscard]] float smallest(const Tensor& x);

}  // namespace fq::cpu
