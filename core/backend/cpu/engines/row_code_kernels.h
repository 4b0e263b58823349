#pragma once

/// Quantization of rows as in ggml and XNNPACK at run time (ggml_formulas.h, xnnpack_formulas.h), compiled
/// for every vector instruction set and selected at run time.

#include <cmath>
#include <cstdint>

namespace fq::cpu {

/// Returns whether numbers of this range, without NaN, can be quantized with vectors. If a product may be
/// NaN, the scalar formula is needed.
inline bool have_vector_codes(float range, float factor) {
  return std::isfinite(range) && std::isfinite(factor);
}

/// Computes the largest magnitudes of blocks of 32 numbers, ignoring NaN. Returns whether one was NaN.
[[nodiscard]] bool block_ranges(const float* x, std::int64_t blocks, float* amax);
/// Applies detail::ggml_activation_code to blocks of 32 finite numbers, with a finite factor per block.
void block_codes(const float* x, std::int64_t blocks, const float* factors, std::int8_t* codes);

/// Applies detail::ggml_extreme to blocks of 32 numbers. Returns whether one was NaN.
[[nodiscard]] bool block_extremes(const float* x, std::int64_t blocks, float* extremes);
/// Applies detail::ggml_q4_0_code to blocks of 32 finite numbers, with a finite factor per block.
void halves_up_codes(const float* x, std::int64_t blocks, const float* factors, std::int8_t* codes);

/// Computes the minimum and maximum of a row and 0, ignoring NaN. Returns whether one was NaN.
[[nodiscard]] bool row_range(const float* x, std::int64_t columns, float* low, float* high);
/// Applies detail::xnnpack_code to finite numbers with a finite factor. Processes whole vectors and returns
/// the number of processed elements; the caller processes the rest.
std::int64_t row_codes(const float* x, std::int64_t columns, float factor, float zero, std::int8_t* codes);

}  // namespace fq::cpu
