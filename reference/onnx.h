#pragma once

/// ONNX's QuantizeLinear and DequantizeLinear, with the bits of ONNX Runtime on a CPU.
///
///     const Tensor codes = onnx::quantize_linear(x, 0.05, 128);       // u8, the default
///     const Tensor back = onnx::dequantize_linear(codes, 0.05, 128);
///     const Tensor rows = onnx::quantize_linear(x, scale, zero, 0);   // one scale for each index of axis 0
///
/// They are vectorised by the compiler: they take one to three copies of memory, 8-bit floats in blocks of
/// fewer than 128 elements four.

#include <optional>

#include "fakequant/reference/constant.h"

namespace fq::onnx {

/// Codes of `x`. Integers i8, u8, i16, u16 or packed i2, u2, i4, u4 are saturate(rne(x / scale) +
/// zero_point), by a true division in f32, with NaN as the lowest code. Floats f8_e4m3, f8_e5m2 or packed
/// f4_e2m1 are x / scale rounded half to even, where a zero point of f4_e2m1 makes +0 of -0; beyond the largest value they are its code, or, f8 without
/// `saturate`, NaN (E4M3 beyond 464) or infinity (E5M2 from 61440).
///
/// `x` is f32, f16, bf16 or i32; `scale` f32, f16 or bf16, the type of a float x. A scale of one element
/// (rank 0 or 1) is per tensor; a list has one element for each index of `axis`; with `block_size` B it has
/// the shape of x but ceil(D / B) along `axis`, x having 2 axes at least and the last block what is left.
/// `zero_point` has the scale's shape and the type of the codes (numbers take it), and is 0 for floats. The
/// codes are of `output_dtype`, else of the zero point's type, else u8.
///
/// On `meta` only the shape flows. Codes pass no gradient: a Variable that needs one is refused. Throws
/// ArgumentError for what is none of these.
[[nodiscard]] Tensor quantize_linear(const Constant& x, const Constant& scale,
                                     const Constant& zero_point = {}, int axis = 1,
                                     std::int64_t block_size = 0, bool saturate = true,
                                     std::optional<DType> output_dtype = {});
/// fl((codes - zero_point) * scale) in f32, then in the type of the scale (of `output_dtype`, where given).
/// Codes are as above, or i32, whose zero point is 0; all else is as above.
[[nodiscard]] Tensor dequantize_linear(const Constant& codes, const Constant& scale,
                                       const Constant& zero_point = {}, int axis = 1,
                                       std::int64_t block_size = 0, std::optional<DType> output_dtype = {});

}  // namespace fq::onnx
