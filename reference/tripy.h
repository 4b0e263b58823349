#pragma once

/// Quantize and dequantize as NVIDIA Tripy defines them.
///
///     const Tensor codes = tripy::quantize(x, 0.5, DType::i8);
///     const Tensor back = tripy::dequantize(codes, 0.5);
///     const Tensor packed = tripy::quantize({{1, 2}, {3, 4}}, {0.5, 0.25}, DType::i4, 1);  // dim 1: columns

#include <optional>

#include "fakequant/reference/constant.h"

namespace fq::tripy {

/// Codes saturate(rne(input / scale)) of `dtype` i8 (-128 .. 127), i4 (-8 .. 7, packed) or f8_e4m3
/// (saturating). `input` is f32, f16 or bf16, and so is the scale, of the same type; numbers and lists take
/// it.
///
/// A scale of one element is per tensor. With `dim` it is a list of one element for each index of that axis;
/// a scale of rank 2 [blocks, columns] is for blocks of rows of an input [rows, columns], i4 only, `blocks` a
/// divisor of the rows.
///
/// On `meta` only the shape flows. Codes pass no gradient: a Variable that needs one is refused, as input and
/// as scale. Throws ArgumentError for what is none of these.
[[nodiscard]] Tensor quantize(const Constant& input, const Constant& scale, DType dtype,
                              std::optional<int> dim = {});
/// fl(codes * scale) in f32, then in `dtype`, f32 or f16; codes and scale are as above.
[[nodiscard]] Tensor dequantize(const Constant& input, const Constant& scale, DType dtype = DType::f32,
                                std::optional<int> dim = {});

}  // namespace fq::tripy
