#pragma once

/// Functions of f32 elements for every vector instruction set, with the bits of the scalar formulas
/// (core/numerics/detail/function_formulas-inl.h).

#include <cstdint>

#include "fakequant/core/numerics/number_formats.h"

namespace fq::cpu {

void gelu_values(const float* x, std::int64_t n, float* y);
/// dx = dy * slope(x)
void gelu_gradients(const float* dy, const float* x, std::int64_t n, float* dx);
void silu_values(const float* x, std::int64_t n, float* y);
void silu_gradients(const float* dy, const float* x, std::int64_t n, float* dx);

/// Of a row of softmax: its largest element and the sum of the powers.
struct RowPowers {
  float largest, sum;
};
/// y[i] = e^(x[i] - largest). `y` may be `x`; `n` is 1 or more. Where all are -infinity, y and the sum are 0.
RowPowers powers_of_row(const float* x, std::int64_t n, float* y);
/// y[i] /= divisor
void divide_row(float divisor, std::int64_t n, float* y);

// GELU of ggml by a table with an entry for each f16, for each vector instruction set.
//

/// y[i] = entries[f16(x[i])], but 0 up to -10 and x[i] from 10 on, for whole vectors: the caller does those
/// behind the count that is returned. `entries` has 65,536 numbers.
std::int64_t gelu_entries_of(const float* x, std::int64_t n, const float* entries, float* y);

// Conversion of f32 arrays to bf16 and f16, with the bits of number_formats.h, for each vector instruction
// set.

void narrow_floats(const float* x, std::int64_t count, bfloat16* y);
void narrow_floats(const float* x, std::int64_t count, float16* y);

}  // namespace fq::cpu
