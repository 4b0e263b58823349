#pragma once

/// Gradients of rows of layer normalization and softmax, f32 or f64: inlined loops over one row, and loops
/// over rows for every vector instruction set.

#include <cstdint>

#include "fakequant/core/backend/attention_rows.h"
#include "fakequant/core/numerics/detail/row_formulas.h"

namespace fq::cpu {

template <class T>
struct LayerNormRow {
  const T *dy, *x, *gamma;  ///< gamma may be null
  T mean, inverse;
};

/// Computes dx, and adds to dgamma and dbeta.
template <class T>
[[gnu::always_inline]] inline void layer_norm_row_gradients(const LayerNormRow<T>& row, std::int64_t n, T* dx,
                                                            T* dgamma, T* dbeta) {
  const T *dy = row.dy, *x = row.x, *gamma = row.gamma, mean = row.mean, inverse = row.inverse;
  T average = 0, slope = 0;
#pragma omp simd reduction(+ : average, slope)
  for (std::int64_t i = 0; i < n; ++i) {
    const T g = gamma != nullptr ? dy[i] * gamma[i] : dy[i];
    average += g;
    slope += g * detail::layer_normal(x[i], mean, inverse);
  }
  average /= static_cast<T>(n);
  slope /= static_cast<T>(n);
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const T g = gamma != nullptr ? dy[i] * gamma[i] : dy[i];
    const T normal = detail::layer_normal(x[i], mean, inverse);
    dx[i] = detail::layer_norm_gradient(g, normal, inverse, average, slope);
    dgamma[i] += dy[i] * normal;
    dbeta[i] += dy[i];
  }
}

/// Converts dp to the gradient of the scores of p, in place.
template <class T>
[[gnu::always_inline]] inline void score_row_gradients(const T* p, std::int64_t n, T scale, T* dp) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t j = 0; j < n; ++j) sum += dp[j] * p[j];
#pragma omp simd
  for (std::int64_t j = 0; j < n; ++j) dp[j] = detail::attention_gradient(dp[j], p[j], sum, scale);
}

void layer_norm_gradients(const LayerNormRow<float>& row, std::int64_t n, float* dx, float* dgamma,
                          float* dbeta);
void layer_norm_gradients(const LayerNormRow<double>& row, std::int64_t n, double* dx, double* dgamma,
                          double* dbeta);
void score_gradients(const float* p, std::int64_t n, float scale, float* dp);
void score_gradients(const double* p, std::int64_t n, double scale, double* dp);

}  // namespace fq::cpu
