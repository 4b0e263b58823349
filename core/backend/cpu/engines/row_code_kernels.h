#pragma once

/// Parts of rounding rows as ggml and XNNPACK do as they run (ggml_formulas.h, xnnpack_formulas.h), for every
/// vector instruction set, chosen when the program runs.

#include <cmath>
#include <cstdint>

namespace fq::cpu {

/// Whether numbers of that range, none NaN, have codes by vectors: where a product may be NaN, the scalar
/// formula answers.
inline bool have_vector_codes(float range, float factor) {
  return std::isfinite(range) && std::isfinite(factor);
}

/// The largest magnitudes of blocks of 32 numbers, NaN apart. Whether one was NaN.
[[nodiscard]] bool block_ranges(const float* x, std::int64_t blocks, float* amax);
/// detail::ggml_activation_code of blocks of 32 finite numbers, by a finite factor each.
void block_codes(const float* x, std::int64_t blocks, const float* factors, std::int8_t* codes);

/// detail::ggml_extreme of blocks of 32 numbers. Whether one was NaN.
[[nodiscard]] bool block_extremes(const float* x, std::int64_t blocks, float* extremes);
/// detail::ggml_q4_0_code of blocks of 32 finite numbers, by a finite factor each.
void halves_up_codes(const float* x, std::int64_t blocks, const float* factors, std::int8_t* codes);

/// The smallest and the largest of a row and 0, NaN apart. Whether one was NaN.
[[nodiscard]] bool row_range(const float* x, std::int64_t columns, float* low, float* high);
/// detail::xnnpack_code of finite numbers by a finite factor, of as many as fill whole vectors: the caller
/// does those behind the count that is returned.
std::int64_t row_codes(const float* x, std::int64_t columns, float factor, float zero, std::int8_t* codes);

}  // namespace fq::cpu
