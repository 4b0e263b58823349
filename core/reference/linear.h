#pragma once

/// The linear quantization that ONNX, Tripy and TensorRT share; not a public header.

#include "fakequant/core/format.h"
#include "fakequant/core/tensor.h"

namespace fq::detail {

/// One scale for everything; one for each index of `axis`; or, for a scale of rank 2, blocks along axis 0.
/// Throws ArgumentError when the scale fits none of them.
[[nodiscard]] Granularity linear_granularity(const Shape& x, const Shape& scale, int axis,
                                             const char* function);
/// Codes saturate(rne(x / scale)) of type i8, u8, i4 (packed) or f8_e4m3. Division in f32, true.
[[nodiscard]] Tensor linear_quantize(const Tensor& x, const Tensor& scale, const Granularity& granularity,
                                     DType codes, const char* function);
/// fl(code * scale) in f32, then rounded to `dtype`.
[[nodiscard]] Tensor linear_dequantize(const Tensor& codes, const Tensor& scale,
                                       const Granularity& granularity, DType dtype, const char* function);

}  // namespace fq::detail
