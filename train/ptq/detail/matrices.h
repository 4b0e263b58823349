#pragma once

/// Factors and products of matrices for algorithms on weights.

#include <cstdint>
#include <vector>

#include "fakequant/core/tensor.h"

namespace fq::ptq {

/// f32 [columns, rows] of a row-major x whose elements are rows of so many columns.
[[nodiscard]] Tensor transposed(const Tensor& x, std::int64_t columns);

/// The upper triangular U with inverse(h) = U^T U, row-major, of a symmetric positive definite h [n, n]: the
/// inverse of the V with h = V V^T, so that nothing but triangles is inverted. f64. Throws NumericError when
/// h is not positive definite.
[[nodiscard]] std::vector<double> inverse_factor(std::vector<double> h, std::int64_t n);

/// F, f32 [k, n], with gram ~ F^T F for a symmetric positive semidefinite gram [n, n]: a Cholesky
/// factorisation by the largest pivot, in f64, that ends when no more than `residual` of the trace is left.
[[nodiscard]] Tensor low_rank_factor(const Tensor& gram, double residual);

/// d gram for rows of d. Through F where that takes fewer products than gram itself.
class GramProduct {
 public:
  GramProduct(const Tensor& gram, double residual);
  /// [rows, n] -> [rows, n].
  [[nodiscard]] Tensor operator()(const Tensor& d) const;

 private:
  Tensor first_;   ///< F, or gram
  Tensor second_;  ///< F^T; undefined behind gram
};

}  // namespace fq::ptq
