#pragma once

/// Products with E[x x^T] of inputs that depend on each other, which real ones do.

#include "fakequant/core/tensor.h"

namespace fq::ptq {

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
