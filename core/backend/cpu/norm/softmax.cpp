#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>
#include <vector>

#include "fakequant/core/backend/cpu/elementwise/function_kernels.h"
#include "fakequant/core/backend/cpu/elementwise/map.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/detail/convert.h"
#include "fakequant/core/detail/threads.h"
#include "fakequant/core/numerics/detail/row_formulas.h"

namespace fq::cpu {
namespace {

/// Calls f(o, i) for every line of the axis, in parallel.
template <class F>
void each_line(const AxisView& view, F&& f) {
  const std::int64_t lines = view.size == 0 ? 0 : view.outer * view.inner;
#pragma omp parallel for schedule(static) if (lines * view.size > 8192)
  for (std::int64_t line = 0; line < lines; ++line)
    // x: [outer, size, inner]. Elements of a line are `inner` apart.
    f((line / view.inner) * view.size * view.inner + line % view.inner);
}

/// Computes contiguous rows of f32.
void softmax_rows(const float* x, const AxisView& view, bool logarithm, float* y) {
  each_line(view, [=](std::int64_t at) {
    const auto [largest, sum] = powers_of_row(x + at, view.size, y + at);
    if (!logarithm) return divide_row(sum, view.size, y + at);
    const float log_sum = std::log(sum);
    for (std::int64_t i = at; i < at + view.size; ++i)
      y[i] = detail::log_softmax_value(x[i], largest, log_sum);
  });
}

/// Returns the largest element and the logarithm of the sum of exponentials, with the bits of `softmax`.
/// `powers` has room for the row.
template <class T>
std::pair<T, T> row_statistics(const T* x, std::int64_t n, T* powers) {
  if constexpr (std::is_same_v<T, float>) {
    const auto [largest, sum] = powers_of_row(x, n, powers);
    return {largest, std::log(sum)};
  }
  T largest = x[0], sum = 0;
  for (std::int64_t i = 1; i < n; ++i) largest = std::max(largest, x[i]);
  for (std::int64_t i = 0; i < n; ++i) sum += detail::softmax_power(x[i], largest);
  return {largest, std::log(sum)};
}

/// log p of the label of a row, and the weighted sum of log p of all classes; 0 without smoothing.
struct RowTerms {
  double label = 0, all = 0;
};

/// Calls f(row, powers) in parallel; `powers` has room for a row.
template <class T, class F>
void each_row(const Tensor& x, const F& f) {
  const auto classes = static_cast<std::size_t>(x.dim(1));
  detail::FirstError error;
#pragma omp parallel if (x.numel() > 8192)
  {
    std::vector<T> powers;
    error.keep([&] { powers.resize(classes); });
#pragma omp for schedule(static)
    for (std::int64_t n = 0; n < x.dim(0); ++n)
      if (powers.size() == classes) f(n, powers.data());
  }
  error.rethrow();
}

const double* class_weights(const LabelRule& rule) {
  return rule.weights.defined() ? rule.weights.data<double>() : nullptr;
}

}  // namespace

void softmax(const Tensor& x, const AxisView& view, bool logarithm, Tensor& y) {
  if (x.dtype() == DType::f32 && view.inner == 1)
    return softmax_rows(x.data<float>(), view, logarithm, y.mutable_data<float>());
  detail::visit_float(x.dtype(), "softmax", [&]<class T>(T) {
    const T* in = x.data<T>();
    T* out = y.mutable_data<T>();
    each_line(view, [&](std::int64_t at) {
      // Subtracting the largest value keeps exp from overflow.
      T largest = in[at], sum = 0;
      for (std::int64_t i = 1; i < view.size; ++i) largest = std::max(largest, in[at + i * view.inner]);
      for (std::int64_t i = 0; i < view.size; ++i) {
        const std::int64_t j = at + i * view.inner;
        out[j] = detail::softmax_power(in[j], largest);
        sum += out[j];
      }
      const T log_sum = logarithm ? std::log(sum) : T{0};
      for (std::int64_t i = 0; i < view.size; ++i) {
        const std::int64_t j = at + i * view.inner;
        out[j] = logarithm ? detail::log_softmax_value(in[j], largest, log_sum) : out[j] / sum;
      }
    });
  });
}

void softmax_backward(const Tensor& dy, const Tensor& y, const AxisView& view, bool logarithm, Tensor& dx) {
  detail::visit_float(y.dtype(), "softmax", [&]<class T>(T) {
    const T *g = dy.data<T>(), *v = y.data<T>();
    T* out = dx.mutable_data<T>();
    each_line(view, [&](std::int64_t at) {
      T sum = 0;
      for (std::int64_t i = 0; i < view.size; ++i) {
        const std::int64_t j = at + i * view.inner;
        sum += detail::softmax_term(g[j], v[j], logarithm);
      }
      for (std::int64_t i = 0; i < view.size; ++i) {
        const std::int64_t j = at + i * view.inner;
        out[j] = detail::softmax_gradient(g[j], v[j], sum, logarithm);
      }
    });
  });
}

void cross_entropy(const Tensor& x, const Tensor& labels, const LabelRule& rule, Tensor& statistics,
                   Tensor& totals, Tensor& loss) {
  const std::int64_t classes = x.dim(1), rows = labels.numel();
  const auto* label = labels.data<std::int64_t>();
  const detail::SmoothedTarget of(rule.smoothing, classes, class_weights(rule));
  std::vector<RowTerms> terms(static_cast<std::size_t>(rows));
  double total = 0, count = 0;
  detail::visit_float(x.dtype(), "cross_entropy", [&]<class T>(T) {
    T* kept = statistics.mutable_data<T>();
    each_row<T>(x, [&](std::int64_t n, T* powers) {
      const T* own = x.data<T>() + n * classes;
      const auto [largest, log_sum] = row_statistics(own, classes, powers);
      kept[2 * n] = largest;
      kept[2 * n + 1] = log_sum;
      if (label[n] == rule.ignored) return;
      const auto log_p = [&, largest = largest, log_sum = log_sum](std::int64_t c) {
        return static_cast<double>(detail::log_softmax_value(own[c], largest, log_sum));
      };
      RowTerms& term = terms[static_cast<std::size_t>(n)];
      term.label = log_p(label[n]);
      for (std::int64_t c = 0; rule.smoothing > 0 && c < classes; ++c) term.all += of.weight(c) * log_p(c);
    });
    for (std::int64_t n = 0; n < rows; ++n) {
      if (label[n] == rule.ignored) continue;
      // `count` is the sum of the weights, so that the loss is a weighted mean, as in torch.
      const double weight = of.weight(label[n]);
      const RowTerms& term = terms[static_cast<std::size_t>(n)];
      count += weight;
      total -= (1.0 - rule.smoothing) * weight * term.label;
      total -= of.share * term.all;
    }
    loss.mutable_data<T>()[0] = static_cast<T>(detail::mean_or_zero(total, count));
  });
  auto* sums = totals.mutable_data<double>();
  sums[0] = total;
  sums[1] = count;
}

void cross_entropy_backward(const Tensor& x, const Tensor& statistics, const Tensor& labels,
                            const LabelRule& rule, const Tensor& totals, const Tensor& dy, Tensor& dx) {
  const std::int64_t classes = x.dim(1), rows = labels.numel();
  const auto* label = labels.data<std::int64_t>();
  const detail::SmoothedTarget of(rule.smoothing, classes, class_weights(rule));
  detail::visit_float(x.dtype(), "cross_entropy", [&]<class T>(T) {
    const T *in = x.data<T>(), *kept = statistics.data<T>();
    T* out = dx.mutable_data<T>();
    // The loss is a mean: its gradient has the total weight as divisor.
    const T factor = static_cast<T>(detail::mean_or_zero(dy.item(), totals.data<double>()[1]));
#pragma omp parallel for schedule(static) if (x.numel() > 8192)
    for (std::int64_t n = 0; n < rows; ++n) {
      const T all = static_cast<T>(of.targets(label[n])), largest = kept[2 * n], log_sum = kept[2 * n + 1];
      for (std::int64_t i = n * classes, c = 0; c < classes; ++i, ++c)
        out[i] = label[n] == rule.ignored ? T{0}
                                          : of.gradient(detail::log_softmax_value(in[i], largest, log_sum),
                                                        all, c, label[n], factor);
    }
  });
}

void mse_loss(const Tensor& a, const Tensor& b, Tensor& loss) {
  // Partial sums of fixed blocks: the result does not depend on the number of threads.
  constexpr std::int64_t block = 4096;
  const std::int64_t blocks = (a.numel() + block - 1) / block;
  std::vector<double> parts(static_cast<std::size_t>(blocks));
  detail::visit_float(a.dtype(), "mse_loss", [&]<class T>(T) {
    const T *x = a.data<T>(a.layout()), *y = b.data<T>(a.layout());
#pragma omp parallel for schedule(static) if (blocks > 8)
    for (std::int64_t k = 0; k < blocks; ++k) {
      double sum = 0;
      for (std::int64_t i = k * block; i < std::min(a.numel(), (k + 1) * block); ++i)
        sum += detail::squared_difference(x[i], y[i]);
      parts[static_cast<std::size_t>(k)] = sum;
    }
    double total = 0;
    for (const double part : parts) total += part;
    loss.mutable_data<T>()[0] = static_cast<T>(detail::mean_or_zero(total, a.numel()));
  });
}

void mse_loss_backward(const Tensor& a, const Tensor& b, const Tensor& dy, Tensor& da, Tensor& db) {
  detail::visit_float(a.dtype(), "mse_loss", [&]<class T>(T) {
    const T factor = static_cast<T>(detail::mean_or_zero(2.0 * dy.item(), a.numel()));
    map<T>(a, b, da, [factor](T p, T q) { return factor * (p - q); });
    // The gradient of b is the negative gradient of a.
    map<T>(da, db, [](T v) { return -v; });
  });
}

}  // namespace fq::cpu
