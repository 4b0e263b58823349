#pragma once

/// Softmax of lines whose elements lie apart, one thread a line.

#include "fakequant/core/backend/cuda/loops/reduction_shape.h"
#include "fakequant/core/backend/cuda/loops/sums.cuh"
#include "fakequant/core/numerics/detail/row_formulas.h"

namespace fq::cuda {

using fq::detail::log_softmax_value;
using fq::detail::softmax_gradient;
using fq::detail::softmax_power;
using fq::detail::softmax_term;
using fq::detail::softmax_value;

/// y of one element, from the largest of its line and the sum of powers.
template <class T>
FQ_HD T value_of(T x, T largest, double sum, bool logarithm) {
  const T total = static_cast<T>(sum);
  return logarithm ? log_softmax_value(x, largest, std::log(total)) : softmax_value(x, largest, total);
}

struct SoftmaxLines {
  std::int64_t size, inner;
  [[nodiscard]] FQ_HD std::int64_t first(std::int64_t line) const {
    const std::int64_t outer = quotient(line, inner);
    return outer * size * inner + (line - outer * inner);
  }
};

template <class T>
struct SoftmaxLine {
  SoftmaxLines lines;
  const T* x;
  bool logarithm;
  T* y;
  FQ_HD void operator()(std::int64_t line) const {
    const std::int64_t at = lines.first(line);
    const T *in = x + at, *end = in + lines.size * lines.inner;
    T largest = *in;
    for (const T* v = in; v != end; v += lines.inner)
      if (*v > largest) largest = *v;
    SumOf<T> sum{};
    for (const T* v = in; v != end; v += lines.inner) sum.add(softmax_power(*v, largest));
    for (std::int64_t i = 0; i < lines.size; ++i)
      y[at + i * lines.inner] = value_of(in[i * lines.inner], largest, sum.value(), logarithm);
  }
};

template <class T>
struct SoftmaxLineBackward {
  SoftmaxLines lines;
  const T *dy, *y;
  bool logarithm;
  T* dx;
  FQ_HD void operator()(std::int64_t line) const {
    const std::int64_t at = lines.first(line);
    SumOf<T> sum{};
    for (std::int64_t i = 0; i < lines.size; ++i) {
      const std::int64_t j = at + i * lines.inner;
      sum.add(softmax_term(dy[j], y[j], logarithm));
    }
    for (std::int64_t i = 0; i < lines.size; ++i) {
      const std::int64_t j = at + i * lines.inner;
      dx[j] = softmax_gradient(dy[j], y[j], static_cast<T>(sum.value()), logarithm);
    }
  }
};

}  // namespace fq::cuda
