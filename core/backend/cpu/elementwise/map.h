#pragma once

/// Elementwise loops over tensors of one layout. Results do not depend on the thread count.

#include <algorithm>
#include <cstdint>

#include "fakequant/core/backend/cpu/vector/cache.h"
#include "fakequant/core/blocks/detail/channels.h"
#include "fakequant/core/tensor.h"

namespace fq::cpu {

/// Shorter loops run on one thread: starting a team of threads would take as long as the loop.
inline constexpr std::int64_t parallel_elements = 32768;

/// Computes y[i] = f(x[i]).
template <class T, class F>
void map(const Tensor& x, Tensor& y, F f) {
  const std::int64_t n = x.numel();
  const T* in = x.data<T>(x.layout());
  T* out = y.mutable_data<T>(x.layout());
#pragma omp parallel for simd schedule(static) if (n > parallel_elements)
  for (std::int64_t i = 0; i < n; ++i) out[i] = f(in[i]);
}

/// Computes y[i] = f(a[i], b[i]).
template <class T, class F>
void map(const Tensor& a, const Tensor& b, Tensor& y, F f) {
  const std::int64_t n = a.numel();
  const T* left = a.data<T>(a.layout());
  const T* right = b.data<T>(a.layout());
  T* out = y.mutable_data<T>(a.layout());
  constexpr std::int64_t part = 8192, line = 64 / sizeof(T);
  detail::parallel_for((n + part - 1) / part, n > parallel_elements, [&](std::int64_t p) {
    const std::int64_t end = std::min(n, (p + 1) * part);
    std::int64_t i = p * part;
    for (; i + line <= end; i += line) {
      fetch_ahead(left + i);
      fetch_ahead(right + i);
      fetch_ahead(out + i);
#pragma omp simd
      for (std::int64_t j = i; j < i + line; ++j) out[j] = f(left[j], right[j]);
    }
    for (; i < end; ++i) out[i] = f(left[i], right[i]);
  });
}

}  // namespace fq::cpu
