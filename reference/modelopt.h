#pragma once

/// Fake quantization with the bits of NVIDIA ModelOpt's `tensor_quant.py`, as it computes on a CPU.
///
/// Common to all: `x` is f32, f16, bf16 or f64, any layout; arithmetic is f32, that of int_cast_ste in x's
/// type; the output has x's dtype (with a `bias`, the promoted type of the two). x, `amax` and `bias`
/// broadcast together by NumPy's rule: where those have more axes or elements, x is repeated, and its
/// gradient summed in double. On `meta` only shapes flow. The overloads for a Variable record the
/// straight-through gradient: dy where |x - bias| <= amax, +0 elsewhere, dy everywhere with
/// `pass_through_bwd`; amax and bias get none. An amax of rank 0 is first rounded to a 16-bit type of x.
/// Errors: ArgumentError.

#include "fakequant/core/descriptor_fields.h"
#include "fakequant/core/tensor.h"
#include "fakequant/core/variable.h"

namespace fq::modelopt {

/// y = clamp(rne(x * s), lo, hi) / s, s = hi / amax, hi = 2^(num_bits-1+unsigned) - 1, lo = 0, -hi (narrow)
/// or -hi-1. Where amax <= 2^-24, y is 0. NaN stays NaN, Inf saturates (and is NaN where amax is so small),
/// -0 stays -0. An infinite amax makes NaN; with a NaN anywhere in amax small values of it are no longer
/// special. A signed code of one bit is 0 / 0: NaN. Refuses negative amax, a negative x when unsigned (unless
/// x has a NaN), num_bits outside 1 .. 16.
[[nodiscard]] Tensor fake_tensor_quant(const Tensor& x, const Amax& amax, const Tensor& bias = {},
                                       int num_bits = 8, bool is_unsigned = false, bool narrow_range = true,
                                       bool pass_through_bwd = false);
[[nodiscard]] Variable fake_tensor_quant(const Variable& x, const Amax& amax, const Tensor& bias = {},
                                         int num_bits = 8, bool is_unsigned = false, bool narrow_range = true,
                                         bool pass_through_bwd = false);

/// y = e4m3(clamp(x * s, -448, 448)) * (1 / s), s = 448 * (1 / a), a = amax, or 1 where amax <= 2^-24;
/// without amax y = e4m3(x) and the gradient passes everywhere. Half to even, saturating; NaN and -0 stay.
/// Refuses (E,M) != (4,3).
[[nodiscard]] Tensor scaled_e4m3(const Tensor& x, const Amax& amax = {}, const Tensor& bias = {},
                                 int exponent = 4, int mantissa = 3, bool pass_through_bwd = false);
[[nodiscard]] Variable scaled_e4m3(const Variable& x, const Amax& amax = {}, const Tensor& bias = {},
                                   int exponent = 4, int mantissa = 3, bool pass_through_bwd = false);

/// y = clamp(rne(x), lo, hi); the gradient passes where lo <= x <= hi, lo and hi rounded to x's type. NaN
/// stays NaN. Refuses num_bits outside 1 .. 16, and a hi that f16 does not reach (16 bits unsigned).
[[nodiscard]] Tensor int_cast_ste(const Tensor& x, int num_bits, bool is_unsigned = false,
                                  bool narrow_range = true);
[[nodiscard]] Variable int_cast_ste(const Variable& x, int num_bits, bool is_unsigned = false,
                                    bool narrow_range = true);

}  // namespace fq::modelopt

namespace fq {
using modelopt::fake_tensor_quant;
using modelopt::scaled_e4m3;
}  // namespace fq
