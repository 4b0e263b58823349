#pragma once

/// TensorRT's Quantize and Dequantize layers, zero point 0.

#include "fakequant/core/tensor.h"

namespace fq::tensorrt {

/// Codes saturate(rne(x / scale)) of `to_type` i8, i4 (packed) or f8_e4m3. A scale of one element acts per
/// tensor whatever its axis; a list has one element for each index of `axis`; a scale of rank 2 one for each
/// block along axis 0. Throws ArgumentError for another type or a scale that does not fit.
[[nodiscard]] Tensor quantize(const Tensor& x, const Tensor& scale, DType to_type, int axis = 1);
/// codes * scale in f32, then in `dtype`; the scale as above.
[[nodiscard]] Tensor dequantize(const Tensor& codes, const Tensor& scale, DType dtype = DType::f32,
                                int axis = 1);

}  // namespace fq::tensorrt
