#pragma once

/// Fake quantization with the bits of NVIDIA ModelOpt's `tensor_quant.py`, as it computes on a CPU; and its
/// configurations of quantizers.
///
///     const Tensor y = modelopt::fake_tensor_quant(x, 2.5);                      // 8 bits, per tensor
///     const Tensor z = modelopt::fake_tensor_quant(x, amax, {}, 4);              // 4 bits, amax [C, 1, 1]
///     const Variable w = modelopt::scaled_e4m3(Variable(x, true), 448.0);        // passes gradients
///
/// Common to all: `x` is f32, f16, bf16 or f64, any layout; arithmetic is f32, that of int_cast_ste in x's
/// type; the output has x's dtype (with a `bias`, the promoted type of the two). x, `amax` and `bias`
/// broadcast together by NumPy's rule: where those have more axes or elements, x is repeated, and its
/// gradient summed in double. On `meta` only shapes flow.
///
/// The overloads for a Variable record the straight-through gradient: dy where |x - bias| <= amax, +0
/// elsewhere, dy everywhere with `pass_through_bwd`; amax and bias get none. An amax of rank 0 is first
/// rounded to a 16-bit type of x. Every refusal is an ArgumentError. rne is rounding half to even.

#include <concepts>
#include <nlohmann/json_fwd.hpp>

#include "fakequant/core/descriptor.h"
#include "fakequant/core/tensor.h"
#include "fakequant/core/variable.h"

namespace fq::detail {
[[nodiscard]] Tensor scaled_e4m3_by(const Tensor& x, const Tensor& amax, const Tensor& bias, int exponent,
                                    int mantissa, bool pass_through_bwd);
[[nodiscard]] Variable scaled_e4m3_by(const Variable& x, const Tensor& amax, const Tensor& bias, int exponent,
                                      int mantissa, bool pass_through_bwd);
}  // namespace fq::detail

namespace fq::modelopt {

/// Integers: y = clamp(rne(x * s), lo, hi) / s with s = hi / amax, hi = 2^(num_bits-1+unsigned) - 1 and lo =
/// 0, -hi (narrow) or -hi-1. The grid of Grid differs from it: that divides by a scale, this multiplies
/// by its inverse.
///
/// Where amax <= 2^-24, y is 0. NaN stays NaN, Inf saturates (and is NaN where amax is so small), -0 stays
/// -0. An infinite amax makes NaN; with a NaN anywhere in amax small values of it are no longer special. A
/// signed code of one bit is 0 / 0: NaN. It refuses a negative amax, a negative x when unsigned (unless x has
/// a NaN), and num_bits outside 1 .. 16.
[[nodiscard]] Tensor fake_tensor_quant(const Tensor& x, const Amax& amax, const Tensor& bias = {},
                                       int num_bits = 8, bool is_unsigned = false, bool narrow_range = true,
                                       bool pass_through_bwd = false);
[[nodiscard]] Variable fake_tensor_quant(const Variable& x, const Amax& amax, const Tensor& bias = {},
                                         int num_bits = 8, bool is_unsigned = false, bool narrow_range = true,
                                         bool pass_through_bwd = false);
/// The same of a range that is a tensor: on the GPU of x it stays there and nothing waits; a negative number
/// in it raises NumericError when a value is next read back. Elsewhere as an Amax.
[[nodiscard]] Tensor fake_tensor_quant(const Tensor& x, const Tensor& amax, const Tensor& bias = {},
                                       int num_bits = 8, bool is_unsigned = false, bool narrow_range = true,
                                       bool pass_through_bwd = false);
[[nodiscard]] Variable fake_tensor_quant(const Variable& x, const Tensor& amax, const Tensor& bias = {},
                                         int num_bits = 8, bool is_unsigned = false, bool narrow_range = true,
                                         bool pass_through_bwd = false);

/// FP8: y = e4m3(clamp(x * s, -448, 448)) * (1 / s), s = 448 * (1 / a), a = amax, or 1 where amax <= 2^-24;
/// without amax y = e4m3(x) and the gradient passes everywhere. Codes round half to even and saturate; NaN
/// and -0 stay. It refuses (E,M) != (4,3).
[[nodiscard]] Tensor scaled_e4m3(const Tensor& x, const Amax& amax = {}, const Tensor& bias = {},
                                 int exponent = 4, int mantissa = 3, bool pass_through_bwd = false);
[[nodiscard]] Variable scaled_e4m3(const Variable& x, const Amax& amax = {}, const Tensor& bias = {},
                                   int exponent = 4, int mantissa = 3, bool pass_through_bwd = false);
/// The same of a range that is a tensor: on the GPU of x it stays there and nothing waits. Elsewhere as an
/// Amax. `{}` is no range.
template <class Input, std::same_as<Tensor> Range>
[[nodiscard]] auto scaled_e4m3(const Input& x, const Range& amax, const Tensor& bias = {}, int exponent = 4,
                               int mantissa = 3, bool pass_through_bwd = false) {
  return detail::scaled_e4m3_by(x, amax, bias, exponent, mantissa, pass_through_bwd);
}

/// Integers without a scale: y = clamp(rne(x), lo, hi); the gradient passes where lo <= x <= hi, lo and hi
/// rounded to x's type. NaN stays NaN. It refuses num_bits outside 1 .. 16, and a hi that f16 does not reach
/// (16 bits unsigned).
[[nodiscard]] Tensor int_cast_ste(const Tensor& x, int num_bits, bool is_unsigned = false,
                                  bool narrow_range = true);
[[nodiscard]] Variable int_cast_ste(const Variable& x, int num_bits, bool is_unsigned = false,
                                    bool narrow_range = true);

/// The descriptor of the fields of a QuantizerAttributeConfig, with ModelOpt's refusals: besides those of
/// QuantDescriptor it refuses nothing but `{"enable": true}`, and learn_amax. `enable` and `pass_through_bwd`
/// are a quantizer's, not a descriptor's: they are checked and left out. Throws ArgumentError naming the
/// field.
[[nodiscard]] QuantDescriptor quantizer_attribute_config(const nlohmann::json& fields);

/// ModelOpt's names of fields as keys of QuantDescriptor::dict(): `type` "dynamic" is `dynamic`, `calibrator`
/// is `calib_method`, `constant_amax` is `amax`, formats may be spelled "e4m3".
///
/// Fields that only its exporter reads (`trt_high_precision_dtype`, `effective_bits`) are dropped, and so are
/// the defaults of those we have no counterpart for; their other values are refused (`bias`, `rotate`,
/// `backend`, ..). Keys that ModelOpt does not know stay. Throws ArgumentError naming the field.
[[nodiscard]] nlohmann::json descriptor_fields(const nlohmann::json& fields);

}  // namespace fq::modelopt

namespace fq {
using modelopt::fake_tensor_quant;
using modelopt::scaled_e4m3;
}  // namespace fq
