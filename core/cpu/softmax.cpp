#include "fakequant/core/cpu/softmax.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "fakequant/core/convert.h"

namespace fq::cpu {
namespace {

/// f(o, i) for every line of the axis, in parallel.
template <class F>
void each_line(const AxisView& view, F&& f) {
  const std::int64_t lines = view.size == 0 ? 0 : view.outer * view.inner;
#pragma omp parallel for schedule(static) if (lines * view.size > 8192)
  for (std::int64_t line = 0; line < lines; ++line)
    f((line / view.inner) * view.size * view.inner + line % view.inner);
}

}  // namespace

void softmax(const Tensor& x, const AxisView& view, bool logarithm, Tensor& y) {
  detail::visit_float(x.dtype(), "softmax", [&]<class T>(T) {
    const T* in = x.data<T>();
    T* out = y.mutable_data<T>();
    each_line(view, [&](std::int64_t at) {
      T largest = in[at], sum = 0;
      for (std::int64_t i = 1; i < view.size; ++i) largest = std::max(largest, in[at + i * view.inner]);
      for (std::int64_t i = 0; i < view.size; ++i) {
        const std::int64_t j = at + i * view.inner;
        const T power = std::exp(in[j] - largest);
        sum += power;
        out[j] = logarithm ? in[j] - largest : power;
      }
      const T log_sum = logarithm ? std::log(sum) : T{0};
      for (std::int64_t i = 0; i < view.size; ++i) {
        T& v = out[at + i * view.inner];
        v = logarithm ? v - log_sum : v / sum;
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
        sum += logarithm ? g[j] : g[j] * v[j];
      }
      for (std::int64_t i = 0; i < view.size; ++i) {
        const std::int64_t j = at + i * view.inner;
        out[j] = logarithm ? g[j] - std::exp(v[j]) * sum : v[j] * (g[j] - sum);
      }
    });
  });
}

double cross_entropy_sum(const Tensor& log_p, const Tensor& labels, double smoothing) {
  const std::int64_t classes = log_p.dim(1);
  const auto* label = labels.data<std::int64_t>();
  double total = 0;
  detail::visit_float(log_p.dtype(), "cross_entropy", [&]<class T>(T) {
    const T* p = log_p.data<T>();
    for (std::int64_t n = 0; n < labels.numel(); ++n, p += classes) {
      total -= (1.0 - smoothing) * static_cast<double>(p[label[n]]);
      double all = 0;
      for (std::int64_t c = 0; smoothing > 0 && c < classes; ++c) all += static_cast<double>(p[c]);
      total -= smoothing / static_cast<double>(classes) * all;
    }
  });
  return total;
}

void cross_entropy_backward(const Tensor& log_p, const Tensor& labels, double smoothing, double factor,
                            Tensor& dx) {
  const std::int64_t classes = log_p.dim(1);
  const auto* label = labels.data<std::int64_t>();
  detail::visit_float(log_p.dtype(), "cross_entropy", [&]<class T>(T) {
    const T* p = log_p.data<T>();
    T* out = dx.mutable_data<T>();
    const T share = static_cast<T>(smoothing / static_cast<double>(classes)), by = static_cast<T>(factor);
    const T rest = static_cast<T>(1.0 - smoothing);
#pragma omp parallel for schedule(static) if (log_p.numel() > 8192)
    for (std::int64_t n = 0; n < labels.numel(); ++n)
      for (std::int64_t c = 0; c < classes; ++c) {
        const T target = share + (c == label[n] ? rest : T{0});
        out[n * classes + c] = by * (std::exp(p[n * classes + c]) - target);
      }
  });
}

double squared_distance(const Tensor& a, const Tensor& b) {
  constexpr std::int64_t block = 4096;
  const std::int64_t blocks = (a.numel() + block - 1) / block;
  std::vector<double> parts(static_cast<std::size_t>(blocks));
  detail::visit_float(a.dtype(), "mse_loss", [&]<class T>(T) {
    const T *x = a.data<T>(a.layout()), *y = b.data<T>(a.layout());
#pragma omp parallel for schedule(static) if (blocks > 8)
    for (std::int64_t k = 0; k < blocks; ++k) {
      double sum = 0;
      for (std::int64_t i = k * block; i < std::min(a.numel(), (k + 1) * block); ++i) {
        const double d = static_cast<double>(x[i]) - static_cast<double>(y[i]);
        sum += d * d;
      }
      parts[static_cast<std::size_t>(k)] = sum;
    }
  });
  double total = 0;
  for (const double part : parts) total += part;
  return total;
}

}  // namespace fq::cpu
