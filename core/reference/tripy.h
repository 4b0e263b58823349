#pragma once

/// Quantize and dequantize as NVIDIA Tripy defines them.

#include <optional>

#include "fakequant/core/tensor.h"

namespace fq::tripy {

/// Codes saturate(rne(x / scale)) of `dtype` i8 (-128 .. 127), i4 (-8 .. 7, packed) or f8_e4m3 (saturating).
/// `scale` of one element is per tensor, a list per index of `dim`, a scale of rank 2 one per block along
/// axis 0. `x` any float type. Throws ArgumentError for another dtype, a scale that does not fit, a list
/// without `dim`.
[[nodiscard]] Tensor quantize(const Tensor& x, const Tensor& scale, DType dtype, std::optional<int> dim = {});
/// codes * scale in f32, then in `dtype`; the scale as above.
[[nodiscard]] Tensor dequantize(const Tensor& codes, const Tensor& scale, DType dtype = DType::f32,
                                std::optional<int> dim = {});

}  // namespace fq::tripy
