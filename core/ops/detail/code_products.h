#pragma once

/// What linear and convolution share: products of codes.

#include <string_view>

#include "fakequant/core/backend/product_shapes.h"
#include "fakequant/core/variable.h"

namespace fq::detail {

enum class CodeKind : unsigned char {
  floats,    ///< not both quantized, or not both factors: dequantize
  integers,  ///< of up to 8 bits, one scale and a scale a channel: exact sums
  factors,   ///< sums of their products in f32
};

/// How codes are multiplied as numbers of at most 8 significant bits, which bfloat16 holds: x * w = s_x *
/// s_w[c] * sum f_x*f_w. A factor is the code, with one scale or one for each output channel; or, of blocks
/// whose scales are of few bits, the code times (scale / unit), with s = unit.
[[nodiscard]] CodeKind code_kind(const Variable& x, const Variable& w, int w_axis);
/// Whether the codes are their own factors, with one scale or one along `axis` (-1: none).
[[nodiscard]] bool codes_are_factors(const QuantizedTensor& x, int axis);
/// The scales of the factors: f32, rank 0 or [channels along `axis`].
[[nodiscard]] Tensor factor_scale(const QuantizedTensor& x, int axis);

/// fl(s_x * s_w[c % weights' channels]) for each of `channels`; rank 0 where w has one scale.
[[nodiscard]] Tensor product_scale(const QuantizedTensor& x, const QuantizedTensor& w, int w_axis,
                                   std::int64_t channels);

/// The largest magnitude of a sum of `terms` products. Throws ArgumentError where it leaves int32.
[[nodiscard]] std::int64_t largest_sum(const QuantizedTensor& x, const QuantizedTensor& w, std::int64_t terms,
                                       std::string_view function);

/// The raw codes of an integer format, in memory order.
[[nodiscard]] Codes codes_of(const QuantizedTensor& x, const Tensor& codes);

/// The accumulator of sums whose channels lie along `axis`; `bias` may be undefined.
[[nodiscard]] Accumulator product_sums(Tensor sums, const QuantizedTensor& x, const QuantizedTensor& w,
                                       const Variable& bias, int w_axis, int axis, std::int64_t largest_sum);

/// y[.., c] = fl(y[.., c] * scale[c]) + bias[c], channels innermost in memory.
void scale_products(Tensor& y, const Tensor& scale, const Variable& bias);

}  // namespace fq::detail
