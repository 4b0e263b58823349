#pragma once

/// Functions of f32 elements for every vector instruction set, with the bits of the scalar formulas
/// (core/numerics/detail/function_formulas-inl.h).

#include <cstdint>

#include "fakequant/core/numerics/number_formats.h"

namespace fq::cpu {

void gelu_values(const float* x, std::int64_t n, float* y);
/// Computes dx = dy * slope(x).
void gelu_gradients(const float* dy, const float* x, std::int64_t n, float* dx);
void silu_values(const float* x, std::int64_t n, float* y);
void silu_gradients(const float* dy, const float* x, std::int64_t n, float* dx);

/// Largest element of a softmax row, and the sum of the exponentials.
struct RowPowers {
  float largest, sum;
};
/// Computes y[i] = e^(x[i] - largest). `y` may be `x`; `n` is 1 or more. If all elements are -infinity, y and
/// the sum are 0.
RowPowers powers_of_row(const float* x, std::int64_t n, float* y);
/// Computes y[i] /= divisor.
void divide_row(float divisor, std::int64_t n, float* y);

// GELU of ggml by a table with an entry for each f16, for every vector instruction set.
//

/// Sets y[i] = entries[f16(x[i])], but 0 for x[i] <= -10 and x[i] for x[i] >= 10. Processes whole vectors and
/// returns the number of processed elements; the caller processes the rest. `entries` has 65,536 numbers.
std::int64_t read_gelu_entries(const float* x, std::int64_t n, const float* entries, float* y);

// Conversion of f32 arrays to bf16 and f16, with the bits of number_formats.h, for every vector instruction
// set.

void narrow_floats(const float* x, std::int64_t count, bfloat16* y);
void narrow_floats(const float* x, std::int64_t count, float16* y);

}  // namespace fq::cpu
