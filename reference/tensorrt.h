#pragma once

/// TensorRT's Quantize and Dequantize layers, and the entries of its calibration cache.
///
///     const Tensor codes = tensorrt::quantize(x, 0.05);                        // i8, per tensor
///     const Tensor y = tensorrt::dequantize(codes, 0.05);
///     const std::string entry = tensorrt::calibration_cache_entry(2.54f);      // of the scale 0.02
///
/// export/tensorrt_cache.h writes and reads whole caches.

#include <optional>
#include <string>
#include <string_view>

#include "fakequant/reference/constant.h"

namespace fq::tensorrt {

/// Codes saturate(rne(input / scale)) of `to_type` i8, i4 (packed) or f8_e4m3 (saturating). `input` is f32,
/// f16 or bf16.
///
/// A scale of one element is per tensor for any axis; a list has one element for each index of `axis`;
/// a scale of rank 2 [blocks, columns] is for blocks of rows of an input [rows, columns], i4 only, `blocks` a
/// divisor of the rows. Scales are above 0. `zero_point` may be given: zeros, in the scale's shape. There may
/// be at most 2^31 - 1 elements each.
///
/// On `meta` only the shape flows. Codes pass no gradient: a Variable that needs one is refused. Throws
/// ArgumentError for other shapes and types.
[[nodiscard]] Tensor quantize(const Constant& input, const Constant& scale, DType to_type = DType::i8,
                              int axis = 1, const Constant& zero_point = {});
/// fl(codes * scale) in f32, then in `dtype`, f32, f16 or bf16; all else is as above.
[[nodiscard]] Tensor dequantize(const Constant& input, const Constant& scale, DType dtype = DType::f32,
                                int axis = 1, const Constant& zero_point = {});

/// The scale of an entry, which is the bits of a float in hexadecimal, "3c010a14". Throws ArgumentError
/// unless it is eight hexadecimal digits.
[[nodiscard]] float calibration_cache_scale(std::string_view entry);
/// The entry of a scale. Throws ArgumentError for one that is negative or not finite.
[[nodiscard]] std::string calibration_cache_entry_of_scale(float scale);
/// The entry of a signed 8-bit tensor of that range: of the scale fl(amax / 127). Throws ArgumentError for an
/// amax that is negative or not finite.
[[nodiscard]] std::string calibration_cache_entry(float amax);

}  // namespace fq::tensorrt

/// Quantize and dequantize as NVIDIA Tripy defines them.
///
///     const Tensor codes = tripy::quantize(x, 0.5, DType::i8);
///     const Tensor back = tripy::dequantize(codes, 0.5);
///     const Tensor packed = tripy::quantize({{1, 2}, {3, 4}}, {0.5, 0.25}, DType::i4, 1);  // dim 1: columns

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
/// and as scale. Throws ArgumentError for other shapes and types.
[[nodiscard]] Tensor quantize(const Constant& input, const Constant& scale, DType dtype,
                              std::optional<int> dim = {});
/// fl(codes * scale) in f32, then in `dtype`, f32 or f16; codes and scale are as above.
[[nodiscard]] Tensor dequantize(const Constant& input, const Constant& scale, DType dtype = DType::f32,
                                std::optional<int> dim = {});

}  // namespace fq::tripy
