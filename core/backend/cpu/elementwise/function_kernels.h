#pragma once

/// Functions of f32 elements for every vector instruction set, with the bits of the scalar formulas
/// (core/numerics/detail/function_formulas-inl.h).

#include <cstdint>

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

}  // namespace fq::cpu
