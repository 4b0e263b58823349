#pragma once

/// Affine quantization by blocks with the bits of torchao on a CPU.
///
///     using namespace torchao;
///     const auto type = IntegerType::named("uint4");
///     const Shape block = get_block_size(x.shape(), PerGroup{32});
///     const auto [s, z] = choose_qparams_affine(x, MappingType::asymmetric, block, type);
///     const Tensor codes = quantize_affine(x, block, s, z, type);            // u8, 0 .. 15
///     const Tensor y = dequantize_affine(codes, block, s, z, type);
///
/// `block_size` says how many elements along each axis share a scale (`get_block_size` makes it from a
/// granularity): a divisor of the axis, 1 or the whole of it. `scale` is f32, f16 or bf16, of one element for
/// each block, in any shape; `zero_point` likewise, undefined where there is none. x is f32, f16 or bf16, any
/// layout.
///
/// Operations run in the promoted type of x, the scale and a floating zero point: where that has 16 bits,
/// each is rounded to it, five and more an element, in plain loops. A NaN becomes code 0 (and stays NaN in
/// fake quantization), infinities saturate. On `meta` only shapes flow. Throws ArgumentError for a block of
/// another rank or one that does not divide, a scale or zero point of another size or type, codes out of the
/// range of their type, and a zero point that is missing, or given where there is none.

#include <utility>

#include "fakequant/core/variable.h"
#include "fakequant/reference/torchao.h"

namespace fq::torchao {

/// Codes, with r = fl(1 / scale) and mid = (quant_max + quant_min + 1) / 2:
///
/// - integer: clamp(rne(x * r) + zero_point)
/// - floating: clamp(rne((x - (zero_point - scale * mid)) / scale))
/// - none: clamp(rne(x * r))
///
/// They are i8, u8 (also for uint1 to uint7), i16 or i32. int1 to int7 are refused: quantize to int8 with a
/// range.
[[nodiscard]] Tensor quantize_affine(const Tensor& x, const Shape& block_size, const Tensor& scale,
                                     const Tensor& zero_point, IntegerType output_dtype,
                                     const CodeRange& range = {},
                                     ZeroPointDomain domain = ZeroPointDomain::integer);

/// Values of codes in `output_dtype`, f32, f16 or bf16, each step rounded to it:
///
/// - integer: (q - zero_point) * scale, without a zero point q * scale
/// - floating: (q - mid) * scale + zero_point
/// - none: q * scale
///
/// `codes` have the type that `quantize_affine` gives for `input_dtype`; uint1 to uint7 may lie in any type.
[[nodiscard]] Tensor dequantize_affine(const Tensor& codes, const Shape& block_size, const Tensor& scale,
                                       const Tensor& zero_point, IntegerType input_dtype,
                                       const CodeRange& range = {},
                                       ZeroPointDomain domain = ZeroPointDomain::integer,
                                       DType output_dtype = DType::f32);

/// The two in sequence, in x's dtype, without integers between: codes may be of any IntegerType.
[[nodiscard]] Tensor fake_quantize_affine(const Tensor& x, const Shape& block_size, const Tensor& scale,
                                          const Tensor& zero_point, IntegerType quant_dtype,
                                          const CodeRange& range = {},
                                          ZeroPointDomain domain = ZeroPointDomain::integer);
/// dx = (dy * scale) * r (floating: / scale) where the position before the clamp lies strictly between
/// quant_min and quant_max, each product rounded; 0 elsewhere. A scale that requires a gradient gets that of
/// range learning: the sum over its block through both its uses, exact to double precision.
[[nodiscard]] Variable fake_quantize_affine(const Variable& x, const Shape& block_size, const Variable& scale,
                                            const Tensor& zero_point, IntegerType quant_dtype,
                                            const CodeRange& range = {},
                                            ZeroPointDomain domain = ZeroPointDomain::integer);

/// The values and a mask (u1) of the codes that are within the range after the clamp: all but those of NaN.
[[nodiscard]] std::pair<Tensor, Tensor> fake_quantize_affine_cachemask(
    const Tensor& x, const Shape& block_size, const Tensor& scale, const Tensor& zero_point,
    IntegerType quant_dtype, const CodeRange& range = {}, ZeroPointDomain domain = ZeroPointDomain::integer);
[[nodiscard]] std::pair<Variable, Tensor> fake_quantize_affine_cachemask(
    const Variable& x, const Shape& block_size, const Variable& scale, const Tensor& zero_point,
    IntegerType quant_dtype, const CodeRange& range = {}, ZeroPointDomain domain = ZeroPointDomain::integer);

}  // namespace fq::torchao
