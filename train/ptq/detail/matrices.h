#pragma once

/// Matrix factors and products for weight algorithms.

#include <cstdint>
#include <vector>

#include "fakequant/core/tensor.h"

namespace fq::ptq {

/// Returns f32 [columns, rows] from a row-major `x` with rows of `columns` elements.
[[nodiscard]] Tensor transposed(const Tensor& x, std::int64_t columns);

/// Returns the upper triangular U with inverse(h) = U^T U, row-major f64, of a symmetric positive definite h
/// [n, n]. U is the inverse of the V with h = V V^T, so only a triangle is inverted. Throws NumericError if h
/// is not positive definite.
[[nodiscard]] std::vector<double> inverse_factor(std::vector<double> h, std::int64_t n);

/// Returns F, f32 [k, n], with gram ~ F^T F for a symmetric positive semidefinite gram [n, n]. Cholesky
/// factorization with the largest pivot in f64; stops when at most `residual` of the trace is left.
[[nodiscard]] Tensor low_rank_factor(const Tensor& gram, double residual);

/// Multiplies rows d by gram. Uses F if that needs fewer products than gram.
class GramProduct {
 public:
  GramProduct(const Tensor& gram, double residual);
  /// [rows, n] -> [rows, n].
  [[nodiscard]] Tensor operator()(const Tensor& d) const;

 private:
  Tensor first_;   ///< F, or gram
  Tensor second_;  ///< F^T; undefined if first_ is gram
};

}  // namespace fq::ptq
