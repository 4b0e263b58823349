#pragma once

/// XNNPACK's quantized linear layers, for host and device.

#include <cstdint>
#include <limits>

#include "fakequant/core/numerics/detail/formulas.h"
#include "fakequant/core/numerics/number_formats.h"

namespace fq::detail {

/// rne(fl(x * factor)) + zero, saturated to -128 .. 127.
FQ_HD std::int8_t xnnpack_code(float x, float factor, float zero) {
  return static_cast<std::int8_t>(scalar::shifted_code(x, factor, zero));
}

/// Codes -128 .. 127 of a row in the range of the row, which includes 0. `factor` is the reciprocal of the
/// step.
struct XnnpackRow {
  float factor, inverse, zero;

  [[nodiscard]] static FQ_HD XnnpackRow of(float lowest, float highest) {
    const float low = lowest < 0.0f ? lowest : 0.0f, high = highest > 0.0f ? highest : 0.0f;
    const float factor = low == high ? 1.0f : 255.0f / (high - low);
    const float below = low * factor, above = high * factor;
    const bool from_low = (-128.0f + below) + (127.0f + above) > 0.0f;
    const float zero = from_low ? -128.0f - below : 127.0f - above;
    return {factor, 1.0f / factor, scalar::rint_(scalar::clamp_(zero, -128.0f, 127.0f))};
  }
  [[nodiscard]] FQ_HD std::int8_t code(float x) const { return xnnpack_code(x, factor, zero); }
  [[nodiscard]] FQ_HD float value(std::int8_t code) const {
    return scalar::mul_(static_cast<float>(code) - zero, inverse);
  }
  /// fma(fl(fl(A) * inverse), w_scale, bias), A the sum of (q - zero) * w.
  [[nodiscard]] FQ_HD float channel_sum(std::int32_t centred, float w_scale, float bias) const {
    return scalar::fma_(scalar::mul_(static_cast<float>(centred), inverse), w_scale, bias);
  }
  /// fl(fl(sum * inverse) + bias) for a chain of blocks.
  [[nodiscard]] FQ_HD float block_sum(float sum, float bias) const {
    return scalar::scaled_product(sum, inverse, bias);
  }
};

/// Offset of the codes on engines that multiply unsigned bytes (x86-64 with AVX-512 VNNI). The zero-point
/// term is (zero + offset).
constexpr std::int32_t xnnpack_offset = 128;
/// Number of columns per step of the zero-point term.
constexpr std::int64_t xnnpack_chunk = 16;

/// Returns the zero-point term, per unit of the zero point, after one more chunk of weights.
FQ_HD float xnnpack_zero_term(float term, std::int32_t weights, float scale) {
  return scalar::sub_(term, scalar::mul_(static_cast<float>(weights), scale));
}
FQ_HD float xnnpack_first(float term, float zero) {
  return scalar::mul_(term, zero + static_cast<float>(xnnpack_offset));
}

/// Static codes: the bias on the grid of the sums, and the code of a sum. Uses reciprocals and one
/// multiplication.
FQ_HD std::int32_t xnnpack_bias_code(float bias, float sum_scale) {
  const auto code = static_cast<double>(scalar::rint_(scalar::mul_(bias, 1.0f / sum_scale)));
  constexpr double low = std::numeric_limits<std::int32_t>::min(),
                   high = std::numeric_limits<std::int32_t>::max();
  return static_cast<std::int32_t>(code > low ? (code < high ? code : high) : low);
}
FQ_HD std::int8_t xnnpack_sum_code(std::int32_t sum, float multiplier, float zero) {
  const float code =
      scalar::requantize_code(static_cast<float>(sum), multiplier, -128.0f - zero, 127.0f - zero);
  return static_cast<std::int8_t>(code + zero);
}

}  // namespace fq::detail
