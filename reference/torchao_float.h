#pragma once

/// Quantization to 8-bit floats, and casts to floats of any few bits, with the bits of torchao on a CPU.
/// Errors: ArgumentError. On `meta` only shapes flow.

#include <optional>

#include "fakequant/core/tensor.h"

namespace fq::torchao {

/// What choose_scale_float8 may be told.
struct Float8ScaleOptions {
  DType scale_dtype = DType::f32;  ///< f8_e8m0: powers of two, 2^rne(log2(s)); the result is f32 still
  std::optional<double> hp_value_lb = {};  ///< the least amax
  std::optional<double> hp_value_ub = {};  ///< the largest amax
};
/// s = amax / max of each block, max = 448 or 57344, in x's dtype (f32, f16 or bf16), then as f32, one for
/// each block along each axis. Refuses codes but f8_e4m3 and f8_e5m2, a block that does not fit, one of all
/// ones (which torchao reduces to one result) unless x has one element.
[[nodiscard]] Tensor choose_scale_float8(const Tensor& x, const Shape& block_size,
                                         DType float8_dtype = DType::f8_e4m3,
                                         const Float8ScaleOptions& options = {});

/// Codes of clamp(x / scale, -max, max), half to even; f32 arithmetic. `scale` (f32, f16 or bf16) has one
/// element, or x's rank and sizes that divide x's: blocks of the quotients. Refuses other scales.
[[nodiscard]] Tensor quantize_affine_float8(const Tensor& x, const Tensor& scale,
                                            DType float8_dtype = DType::f8_e4m3);
/// code * scale in f32, then in `dtype`.
[[nodiscard]] Tensor dequantize_affine_float8(const Tensor& codes, const Tensor& scale,
                                              DType dtype = DType::f32);

/// Codes, one a byte (u8) in the low bits, of floats with a sign, `ebits` and `mbits` bits, no infinities and
/// no NaN: half to even, saturating, infinity too; zeros keep their sign. x is f32. Refuses ebits or mbits
/// below 1 and more than 7 together. What a NaN becomes is not specified.
[[nodiscard]] Tensor cast_floatx(const Tensor& x, int ebits, int mbits);
/// The values of such codes in f32.
[[nodiscard]] Tensor decode_floatx(const Tensor& codes, int ebits, int mbits);

}  // namespace fq::torchao
