#pragma once

/// Quantization to 8-bit floats, and casts to floats of any few bits, with the bits of torchao on a CPU.
///
///     const Tensor scale = torchao::choose_scale_float8(x, {1, 32});        // x [N, 32]: a scale a row
///     const Tensor codes = torchao::quantize_affine_float8(x, scale);       // f8_e4m3
///     const auto mx = torchao::to_mx(x, FloatFormat{4, 3});                 // codes and E8M0 scales
///
/// Every refusal is an ArgumentError. On `meta` only shapes flow. Only
/// `quantize_affine_float8` of a Variable passes a gradient.

#include <optional>

#include "fakequant/core/format.h"
#include "fakequant/core/tensor.h"
#include "fakequant/core/variable.h"

namespace fq::torchao {

/// What choose_scale_float8 may be told.
struct Float8ScaleOptions {
  DType scale_dtype = DType::f32;  ///< f8_e8m0: powers of two, 2^rne(log2(s)); the result is f32 still
  std::optional<double> hp_value_lb = {};  ///< the least amax
  std::optional<double> hp_value_ub = {};  ///< the largest amax
};
/// s = amax / max of each block, max = 448 or 57344, in x's dtype (f32, f16 or bf16), then as f32, with one
/// for each block along each axis. It refuses codes but f8_e4m3 and f8_e5m2, a block that does not fit, and
/// one of all ones (which torchao reduces to one result) unless x has one element.
[[nodiscard]] Tensor choose_scale_float8(const Tensor& x, const Shape& block_size,
                                         DType float8_dtype = DType::f8_e4m3,
                                         const Float8ScaleOptions& options = {});

/// Codes of clamp(x / scale, -max, max), half to even; arithmetic is f32. `scale` (f32, f16 or bf16) has one
/// element, or x's rank and sizes that divide x's: blocks of the quotients. It refuses other scales.
[[nodiscard]] Tensor quantize_affine_float8(const Tensor& x, const Tensor& scale,
                                            DType float8_dtype = DType::f8_e4m3);
/// Records a straight-through gradient for x: dy / scale where -max <= x / scale <= max, in f32, then
/// in x's type. `scale` gets none.
[[nodiscard]] Variable quantize_affine_float8(const Variable& x, const Tensor& scale,
                                              DType float8_dtype = DType::f8_e4m3);
/// code * scale in f32, then in `dtype`.
[[nodiscard]] Tensor dequantize_affine_float8(const Tensor& codes, const Tensor& scale,
                                              DType dtype = DType::f32);

/// Codes, one a byte (u8) in the low bits, of floats with a sign, `ebits` and `mbits` bits, no infinities and
/// no NaN: half to even, saturating, infinity too; zeros keep their sign. x is f32. It refuses ebits or mbits
/// below 1 and more than 7 together. What a NaN becomes is not specified.
[[nodiscard]] Tensor cast_floatx(const Tensor& x, int ebits, int mbits);
/// The values of such codes, in f32.
[[nodiscard]] Tensor decode_floatx(const Tensor& codes, int ebits, int mbits);

/// How amax of a block becomes its power of two, 2^emax being the largest power of the element type.
enum class ScalingMode : unsigned char {
  floor,  ///< the exponent of amax, less emax
  ceil,   ///< one more where amax is no power of two
  even,   ///< as floor, amax first rounded to the mantissa of the element type
  rceil,  ///< ceil(log2(amax / max)): the largest element does not saturate
};
/// "FLOOR", "CEIL", "EVEN", "RCEIL". Throws ArgumentError for another name.
[[nodiscard]] ScalingMode scaling_mode(std::string_view name);

/// Codes and their scales: one scale for each block, in the shape of the codes but for the last axis.
struct ScaledCodes {
  Tensor scale, codes;
};

/// OCP MX: `x` is f32 or bf16; elements E4M3, E5M2, E3M2, E2M3 or E2M1 give codes f8_e4m3, f8_e5m2, u8 (one a
/// byte, in the low bits) or f4_e2m1 (packed, low nibble first), with scales f8_e8m0.
///
/// x is divided by the scale (2^-127 counts as 2^-126; rceil: as 1) and rounded half to even, saturating. A
/// block with a NaN has scale 255, infinity saturates the scale. It refuses a last axis that `block_size`
/// does not divide, and an odd one for E2M1.
[[nodiscard]] ScaledCodes to_mx(const Tensor& x, FloatFormat element, std::int64_t block_size = 32,
                                ScalingMode mode = ScalingMode::floor);
/// The values of such codes: the element and 2^(scale - 127), both in `dtype` (f32, f16 or bf16), multiplied
/// in it.
[[nodiscard]] Tensor to_dtype(const ScaledCodes& mx, FloatFormat element, std::int64_t block_size = 32,
                              DType dtype = DType::f32);

/// NVFP4: blocks of 16, E2M1 codes (f4_e2m1), scales f8_e4m3 of shape [x.dim(0), the rest / 16]; arithmetic
/// is f32.
///
/// scale = e4m3(clamp(fl(amax / 6) / p, 2^-6, 448)), codes = e2m1(clamp(x * r, -6, 6)), r = fl(fl(1 / p) /
/// scale); without p, `per_tensor_scale`, fl(1 / scale). p (f32) has one element, or one for each index of
/// axis 0 in the shape [x.dim(0), 1] or [x.dim(0), 1, 1]. Zeros keep their sign. `x` is f32 or bf16 of 2 axes
/// or more; a last axis that 16 does not divide is refused.
[[nodiscard]] ScaledCodes nvfp4_quantize(const Tensor& x, const Tensor& per_tensor_scale = {});

}  // namespace fq::torchao
