#pragma once

/// What linear and convolution share: products of codes; not a public header.

#include <string_view>

#include "fakequant/core/cpu/exact.h"
#include "fakequant/core/variable.h"

namespace fq::detail {

enum class CodeKind : unsigned char {
  floats,      ///< not both quantized, or not on grids whose codes are multiplied: dequantize
  integers,    ///< formats up to 8 bits: exact sums
  minifloats,  ///< sums of code values in f32
};

/// x must be quantized per tensor, w per tensor or along `w_axis`.
[[nodiscard]] CodeKind code_kind(const Variable& x, const Variable& w, int w_axis);

/// fl(s_x * s_w[c % weights' channels]) for each of `channels`; rank 0 where w is quantized per tensor.
[[nodiscard]] Tensor product_scale(const QuantizedTensor& x, const QuantizedTensor& w, std::int64_t channels);

/// The largest magnitude of a sum of `terms` products. Throws ArgumentError where it leaves int32.
[[nodiscard]] std::int64_t largest_sum(const QuantizedTensor& x, const QuantizedTensor& w, std::int64_t terms,
                                       std::string_view function);

/// The raw codes of an integer format, in memory order.
[[nodiscard]] cpu::Codes codes_of(const QuantizedTensor& x, const Tensor& codes);

/// The accumulator of sums whose channels lie along `axis`; `bias` may be undefined.
[[nodiscard]] Accumulator product_sums(Tensor sums, const QuantizedTensor& x, const QuantizedTensor& w,
                                       const Variable& bias, int axis, std::int64_t largest_sum);

/// y[.., c] = fl(y[.., c] * scale[c]) + bias[c], channels innermost in memory.
void scale_products(Tensor& y, const Tensor& scale, const Variable& bias);

}  // namespace fq::detail
