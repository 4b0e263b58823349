#pragma once

/// Microscaling formats: blocks along the last axis with a scale of 8 bits, with the bits of torchao on a
/// CPU, in plain loops over the blocks. Errors: ArgumentError. On `meta` only shapes flow.

#include "fakequant/core/format.h"
#include "fakequant/core/tensor.h"

namespace fq::torchao {

/// How amax of a block becomes its power of two, 2^emax being the largest power of the element type.
enum class ScalingMode : unsigned char {
  floor,  ///< the exponent of amax, less emax
  ceil,   ///< one more where amax is no power of two
  even,   ///< as floor, amax first rounded to the mantissa of the element type
  rceil,  ///< ceil(log2(amax / max)): the largest element does not saturate
};
/// "FLOOR", "CEIL", "EVEN", "RCEIL". Throws ArgumentError for another name.
[[nodiscard]] ScalingMode scaling_mode(std::string_view name);

/// Codes and their scales, one for each block, in the shape of the codes but for the last axis.
struct ScaledCodes {
  Tensor scale, codes;
};

/// `x` f32 or bf16; elements E4M3, E5M2, E3M2, E2M3 or E2M1: codes f8_e4m3, f8_e5m2, u8 (one a byte, in the
/// low bits) or f4_e2m1 (packed, low nibble first), scales f8_e8m0. x is divided by the scale (2^-127 counts
/// as 2^-126; rceil: as 1) and rounded half to even, saturating. A block with a NaN has scale 255, infinity
/// saturates the scale. Refuses a last axis that `block_size` does not divide, and an odd one for E2M1.
[[nodiscard]] ScaledCodes to_mx(const Tensor& x, FloatFormat element, std::int64_t block_size = 32,
                                ScalingMode mode = ScalingMode::floor);
/// Element and 2^(scale - 127), both in `dtype` (f32, f16 or bf16), multiplied in it.
[[nodiscard]] Tensor to_dtype(const ScaledCodes& mx, FloatFormat element, std::int64_t block_size = 32,
                              DType dtype = DType::f32);

/// NVFP4: blocks of 16, E2M1 codes (f4_e2m1), scales f8_e4m3 of shape [x.dim(0), the rest / 16]; f32
/// arithmetic. scale = e4m3(clamp(fl(amax / 6) / p, 2^-6, 448)), codes = e2m1(clamp(x * r, -6, 6)), r =
/// fl(fl(1 / p) / scale); without p, `per_tensor_scale`, fl(1 / scale). p (f32) has one element, or one for
/// each index of axis 0 in the shape [x.dim(0), 1] or [x.dim(0), 1, 1]. Zeros keep their sign. `x` f32 or
/// bf16 of 2 axes or more; refuses a last axis that 16 does not divide.
[[nodiscard]] ScaledCodes nvfp4_quantize(const Tensor& x, const Tensor& per_tensor_scale = {});

}  // namespace fq::torchao
