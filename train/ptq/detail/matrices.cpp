#include "fakequant/train/ptq/detail/matrices.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "fakequant/core/error.h"
#include "fakequant/core/ops/linear.h"
#include "fakequant/core/variable.h"

namespace fq::ptq {
namespace {

/// Factors h = V V^T in place, with V upper triangular. Does not change the elements below the diagonal.
void factor(std::vector<double>& h, std::int64_t n) {
  const auto row = [&](std::int64_t i) { return h.begin() + i * n; };
  for (std::int64_t j = n; j-- > 0;) {
    const auto tail = row(j) + j + 1, end = row(j) + n;
    // Columns from the last to the first: V is upper triangular, so that row i depends on later columns only.
    const double pivot = row(j)[j] - std::inner_product(tail, end, tail, 0.0);
    if (!(pivot > 0)) throw NumericError("[gptq] the Hessian is not positive definite: raise the damping");
    row(j)[j] = std::sqrt(pivot);
    for (std::int64_t i = 0; i < j; ++i)
      row(i)[j] = (row(i)[j] - std::inner_product(tail, end, row(i) + j + 1, 0.0)) / row(j)[j];
  }
}

using FactorRow = std::vector<double>;

/// Returns the next row of F: column `pivot` of the residual of gram, divided by the root of its diagonal.
FactorRow next_row(const float* gram, std::int64_t n, std::int64_t pivot, double left,
                   const std::vector<FactorRow>& factor) {
  FactorRow out(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = double(gram[pivot * n + static_cast<std::int64_t>(i)]);
  for (const FactorRow& row : factor) {
    const double at = row[static_cast<std::size_t>(pivot)];
    for (std::size_t i = 0; i < out.size(); ++i) out[i] -= at * row[i];
  }
  for (double& v : out) v /= std::sqrt(left);
  return out;
}

}  // namespace

Tensor transposed(const Tensor& x, std::int64_t columns) {
  const std::int64_t rows = x.numel() / columns;
  Tensor out = Tensor::empty({columns, rows});
  const auto* from = x.data<float>();
  auto* to = out.mutable_data<float>();
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c) to[c * rows + r] = from[r * columns + c];
  return out;
}

// h = V V^T gives inverse(h) = U^T U with U = inverse(V), also upper triangular: the factor that GPTQ reads.
std::vector<double> inverse_factor(std::vector<double> h, std::int64_t n) {
  factor(h, n);
  std::vector<double> out(h.size(), 0.0);
  for (std::int64_t i = n; i-- > 0;) {
    auto* to = out.data() + i * n;
    const auto* v = h.data() + i * n;
    // Row i of U by back substitution: V U = I.
    to[i] = 1.0;
    for (std::int64_t k = i + 1; k < n; ++k)
      for (std::int64_t j = k; j < n; ++j) to[j] -= v[k] * out[static_cast<std::size_t>(k * n + j)];
    for (std::int64_t j = i; j < n; ++j) to[j] /= v[i];
  }
  return out;
}

// Cholesky factorization with diagonal pivoting: gram ~ F^T F. `left` is the diagonal of the residual, whose
// sum is the power that F does not explain yet.
Tensor low_rank_factor(const Tensor& gram, double residual) {
  const std::int64_t n = gram.dim(0);
  const auto* g = gram.data<float>();
  FactorRow left(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) left[static_cast<std::size_t>(i)] = double(g[i * (n + 1)]);
  const double enough = residual * std::accumulate(left.begin(), left.end(), 0.0);
  std::vector<FactorRow> factor;
  while (std::ssize(factor) < n && std::accumulate(left.begin(), left.end(), 0.0) > enough) {
    const auto pivot = std::ranges::max_element(left);
    if (!(*pivot > 0)) break;
    factor.push_back(next_row(g, n, pivot - left.begin(), *pivot, factor));
    for (std::size_t i = 0; i < left.size(); ++i)
      // Rounding could make the diagonal negative.
      left[i] = std::max(0.0, left[i] - factor.back()[i] * factor.back()[i]);
  }
  Tensor out = Tensor::empty({std::ssize(factor), n});
  auto* to = out.mutable_data<float>();
  for (const FactorRow& row : factor)
    for (const double v : row) *to++ = static_cast<float>(v);
  return out;
}

GramProduct::GramProduct(const Tensor& gram, double residual) : first_(gram) {
  const Tensor factor = low_rank_factor(gram, residual);
  // Two products with r rows cost less than one with n rows only if 2 r < n.
  if (factor.dim(0) == 0 || 2 * factor.dim(0) >= gram.dim(0)) return;
  first_ = factor;
  second_ = transposed(factor, factor.dim(1));
}

Tensor GramProduct::operator()(const Tensor& d) const {
  // linear multiplies by the transposed matrix: d F^T, then (d F^T) F. A symmetric gram needs no
  // transposition.
  const Variable product = ops::linear(Variable(d), Variable(first_));
  return second_.defined() ? ops::linear(product, Variable(second_)).tensor() : product.tensor();
}

}  // namespace fq::ptq
