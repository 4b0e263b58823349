#pragma once

/// The linear quantization that ONNX, Tripy and TensorRT share. Arithmetic is f32.

#include <initializer_list>
#include <string_view>

#include "fakequant/core/format.h"
#include "fakequant/core/tensor.h"

namespace fq::detail {

/// Scale and zero point of each block, of any types and devices; `zero_point` may be undefined: 0. Their
/// elements are counted row-major, as the blocks are; `block` has the rank of the input.
struct LinearGrid {
  Tensor scale, zero_point;
  Shape block;
};

/// E4M3, E5M2 and E2M1 codes.
[[nodiscard]] bool is_minifloat(DType codes) noexcept;
/// The full range of an integer type of 2 to 16 bits.
[[nodiscard]] IntFormat integer_format(DType codes) noexcept;

/// Codes of type i8, u8, i16, u16, packed i2, u2, i4 or u4: saturate(rne(x / scale) + zero_point), a true
/// division, NaN the lowest code. f8_e4m3, f8_e5m2 or packed f4_e2m1: x / scale rounded half to even. A zero
/// point is added in f4_e2m1 alone, where it makes +0 of -0. Beyond the largest value its code, or, of f8
/// without `saturate`, NaN or infinity.
[[nodiscard]] Tensor linear_quantize(const Tensor& x, const LinearGrid& grid, DType codes,
                                     bool saturate = true);
/// fl((code - zero_point) * scale), rounded to `dtype`.
[[nodiscard]] Tensor linear_dequantize(const Tensor& codes, const LinearGrid& grid, DType dtype);

/// The block of a scale that is for everything (one element, rank 0 or 1), or for each index of `axis` (a
/// list of that length). Throws ArgumentError for other shapes.
[[nodiscard]] Shape linear_block(const Shape& x, const Shape& scale, int axis, const char* function);
/// The block of a scale of rank 2 that divides axis 0 of an input of rank 2; ArgumentError where it does not.
[[nodiscard]] Shape rows_block(const Shape& x, const Shape& scale, const char* function);

/// Checks that `dtype` is one of `allowed`; ArgumentError listing them otherwise.
void check_dtype(DType dtype, std::initializer_list<DType> allowed, std::string_view what,
                 const char* function);

}  // namespace fq::detail
