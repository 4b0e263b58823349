#pragma once

/// Products by plain loops, for any types: used for f64 and as the reference of tests. `Sum` is the type of
/// the multiplication and of the sum. Arrays have the layout of engine.h.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "fakequant/core/backend/cpu/engine/engine.h"

namespace fq::cpu {

/// Computes c [m, n] = a [m, k] * b. b is [k, n], or [n, k] with `transposed_b`. a is [k, m] with
/// `transposed_a`.
template <class Sum, class A, class B, class C>
void reference_gemm(std::int64_t m, std::int64_t n, std::int64_t k, const A* a, bool transposed_a, const B* b,
                    bool transposed_b, C* c) {
#pragma omp parallel for schedule(static) if (m * n * k > 65536)
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      Sum sum{};
      for (std::int64_t l = 0; l < k; ++l)
        sum += static_cast<Sum>(a[transposed_a ? l * m + i : i * k + l]) *
               static_cast<Sum>(b[transposed_b ? j * k + l : l * n + j]);
      c[i * n + j] = static_cast<C>(sum);
    }
}

/// Calls f(x index, w index) for every pair of factors of the output (n, o, i, j).
template <class F>
void visit_window(const ConvShape& s, std::int64_t n, std::int64_t o, std::int64_t i, std::int64_t j, F&& f) {
  const std::int64_t in = s.c / s.groups, group = o / (s.o / s.groups);
  for (std::int64_t c = 0; c < in; ++c)
    for (std::int64_t u = 0; u < s.kh; ++u)
      for (std::int64_t v = 0; v < s.kw; ++v) {
        const std::int64_t y = i * s.stride[0] + u * s.dilation[0] - s.padding[0];
        const std::int64_t x = j * s.stride[1] + v * s.dilation[1] - s.padding[1];
        if (y < 0 || y >= s.h || x < 0 || x >= s.w) continue;
        f(((n * s.h + y) * s.w + x) * s.c + group * in + c, ((o * in + c) * s.kh + u) * s.kw + v);
      }
}

/// Calls f(y index, n, o, i, j) for every output, in memory order.
template <class F>
void visit_outputs(const ConvShape& s, std::int64_t n, F&& f) {
  for (std::int64_t i = 0; i < s.oh; ++i)
    for (std::int64_t j = 0; j < s.ow; ++j)
      for (std::int64_t o = 0; o < s.o; ++o) f(((n * s.oh + i) * s.ow + j) * s.o + o, n, o, i, j);
}

template <class Sum, class X, class W, class Y>
void reference_conv_forward(const ConvShape& s, const X* x, const W* w, Y* y) {
#pragma omp parallel for schedule(static)
  for (std::int64_t n = 0; n < s.n; ++n)
    visit_outputs(s, n, [&](std::int64_t out, auto... at) {
      Sum sum{};
      visit_window(s, at...,
                   [&](auto in, auto k) { sum += static_cast<Sum>(x[in]) * static_cast<Sum>(w[k]); });
      y[out] = static_cast<Y>(sum);
    });
}

/// `dx` must be 0 initially.
template <class Sum, class D, class W>
void reference_conv_backward_data(const ConvShape& s, const D* dy, const W* w, Sum* dx) {
#pragma omp parallel for schedule(static)
  for (std::int64_t n = 0; n < s.n; ++n)
    visit_outputs(s, n, [&](std::int64_t out, auto... at) {
      visit_window(s, at...,
                   [&](auto in, auto k) { dx[in] += static_cast<Sum>(dy[out]) * static_cast<Sum>(w[k]); });
    });
}

/// `dw` must be 0 initially.
template <class Sum, class X, class D>
void reference_conv_backward_weights(const ConvShape& s, const X* x, const D* dy, Sum* dw) {
  for (std::int64_t n = 0; n < s.n; ++n)
    visit_outputs(s, n, [&](std::int64_t out, auto... at) {
      visit_window(s, at...,
                   [&](auto in, auto k) { dw[k] += static_cast<Sum>(x[in]) * static_cast<Sum>(dy[out]); });
    });
}

// Column sums whose bits do not depend on the number of threads.

/// Computes sums[c], the sum of rows [rows, columns]. add(row, to) adds one row to `to`. Blocks of rows are
/// summed separately and added in order.
template <class T, class Add>
void sum_columns(std::int64_t rows, std::int64_t columns, T* sums, Add&& add) {
  constexpr std::int64_t block = 256;
  const std::int64_t blocks = (rows + block - 1) / block;
  std::vector<T> partial(static_cast<std::size_t>(blocks * columns));
#pragma omp parallel for schedule(static) if (rows * columns > 32768)
  for (std::int64_t i = 0; i < blocks; ++i)
    for (std::int64_t r = i * block; r < std::min(rows, (i + 1) * block); ++r)
      add(r, partial.data() + i * columns);
  std::vector<double> total(static_cast<std::size_t>(columns));
  for (std::int64_t i = 0; i < blocks * columns; ++i)
    total[static_cast<std::size_t>(i % columns)] += static_cast<double>(partial[static_cast<std::size_t>(i)]);
  std::transform(total.begin(), total.end(), sums, [](double value) { return static_cast<T>(value); });
}

}  // namespace fq::cpu
