#include <algorithm>
#include <cmath>
#include <vector>

#include "fakequant/core/backend/cpu/norm/row_gradient_kernels.h"
#include "fakequant/core/backend/cpu/vector/cache.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/blocks/detail/channels.h"
#include "fakequant/core/detail/convert.h"
#include "fakequant/core/numerics/detail/row_formulas.h"

namespace fq::cpu {
namespace {

template <class T>
const T* values(const Tensor& tensor) {
  return tensor.defined() ? tensor.data<T>() : nullptr;
}

template <class T, class F>
// The compiler splits the sum into lanes: the order depends on the build, not on the run.
T sum(std::int64_t n, F f) {
  T total = 0;
#pragma omp simd reduction(+ : total)
  for (std::int64_t i = 0; i < n; ++i) total += f(i);
  return total;
}

// x, y: [rows, n]; gamma, beta: [n].
template <class T>
void row_forward(const T* x, std::int64_t n, const T* gamma, const T* beta, double eps, T* y, T& mean,
                 T& inverse) {
  // Two passes: squares of differences to the mean do not cancel.
  const T m = sum<T>(n, [x](std::int64_t i) { return x[i]; }) / static_cast<T>(n);
  const T squares = sum<T>(n, [x, m](std::int64_t i) { return (x[i] - m) * (x[i] - m); });
  const T scale = T{1} / std::sqrt(squares / static_cast<T>(n) + static_cast<T>(eps));
  for (std::int64_t i = 0; i < n; ++i) {
    const T normal = detail::layer_normal(x[i], m, scale);
    y[i] = detail::layer_norm_value(normal, gamma != nullptr ? gamma[i] : T{1},
                                    beta != nullptr ? beta[i] : T{0});
  }
  mean = m;
  inverse = scale;
}

/// Rows per block in backward. The order of sums depends on it, not on the number of threads.
constexpr std::int64_t block_rows = 64;

/// Sets out to the sum of the elements from `first` of all parts, which have 2 * n elements. Sums of many
/// rows need f64 and are rounded once.
template <class T>
void add_parts(const std::vector<T>& parts, std::int64_t first, std::int64_t n, Tensor& out) {
  if (!out.defined()) return;
  std::vector<double> sums(static_cast<std::size_t>(n), 0.0);
  for (auto at = static_cast<std::size_t>(first); at < parts.size(); at += 2 * sums.size())
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += static_cast<double>(parts[at + i]);
  std::ranges::transform(sums, out.mutable_data<T>(), [](double sum) { return static_cast<T>(sum); });
}

}  // namespace

void layer_norm(const Tensor& x, std::int64_t n, const Tensor& gamma, const Tensor& beta, double eps,
                Tensor& y, Tensor& mean, Tensor& inverse) {
  detail::visit_float(x.dtype(), "layer_norm", [&]<class T>(T) {
    const T *in = x.data<T>(), *g = values<T>(gamma), *b = values<T>(beta);
    T *out = y.mutable_data<T>(), *means = mean.mutable_data<T>(), *inverses = inverse.mutable_data<T>();
    detail::parallel_for(mean.numel(), x.numel() > 16384, [&](std::int64_t r) {
      fetch_ahead(in + r * n, n);
      fetch_ahead(out + r * n, n);
      row_forward(in + r * n, n, g, b, eps, out + r * n, means[r], inverses[r]);
    });
  });
}

void layer_norm_backward(detail::NormGradient& gradient, const Tensor& x, std::int64_t n, const Tensor& gamma,
                         const Tensor& mean, const Tensor& inverse, Tensor& dgamma, Tensor& dbeta) {
  const std::int64_t rows = mean.numel(), blocks = (rows + block_rows - 1) / block_rows;
  detail::visit_float(x.dtype(), "layer_norm", [&]<class T>(T) {
    const T *d = gradient.dy.data<T>(), *in = x.data<T>(), *g = values<T>(gamma);
    const T *means = mean.data<T>(), *inverses = inverse.data<T>();
    T* out = gradient.dx.mutable_data<T>();
    std::vector<T> parts(static_cast<std::size_t>(2 * blocks * n), T{0});
#pragma omp parallel for schedule(static) if (blocks > 1)
    for (std::int64_t b = 0; b < blocks; ++b) {
      // Layout of a part: dgamma [n], then dbeta [n]. f32 sums of 64 rows are added in f64.
      T* part = parts.data() + 2 * b * n;
      for (std::int64_t r = b * block_rows; r < std::min(rows, (b + 1) * block_rows); ++r) {
        fetch_ahead(d + r * n, n);
        fetch_ahead(in + r * n, n);
        fetch_ahead(out + r * n, n);
        layer_norm_gradients(LayerNormRow<T>{d + r * n, in + r * n, g, means[r], inverses[r]}, n, out + r * n,
                             part, part + n);
      }
    }
    add_parts(parts, 0, n, dgamma);
    add_parts(parts, n, n, dbeta);
  });
}

}  // namespace fq::cpu
