#include "fakequant/core/cpu/updates.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "fakequant/core/cpu/map.h"

namespace fq::cpu {
namespace {

constexpr std::int64_t block = 8192;

/// Calls f(array, i) for every element of every array.
template <class Arrays, class F>
void for_each_element(const Arrays& arrays, F f) {
  std::int64_t total = 0;
  for (const auto& a : arrays) total += a.n;
#pragma omp parallel if (total > parallel_elements)
  for (const auto& a : arrays) {
#pragma omp for simd schedule(static) nowait
    for (std::int64_t i = 0; i < a.n; ++i) f(a, i);
  }
}

template <class T>
double block_squares(const T* values, std::int64_t n) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < n; ++i) sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  return sum;
}

}  // namespace

template <class T>
void sgd(std::span<const SgdArrays<T>> arrays, const SgdFactors<T>& factors) {
  const auto [momentum, scale, nesterov] = factors;
  for_each_element(arrays, [=](const SgdArrays<T>& a, std::int64_t i) {
    const T g = a.gradient[i] * scale + a.weight_decay * a.parameter[i];
    T direction = g;
    if (a.momentum != nullptr) {
      const T m = momentum * a.momentum[i] + g;
      a.momentum[i] = m;
      direction = nesterov ? g + momentum * m : m;
    }
    a.parameter[i] -= a.learning_rate * direction;
  });
}

template <class T>
void adam(std::span<const AdamArrays<T>> arrays, const AdamFactors<T>& factors) {
  const auto [beta1, rest1, beta2, rest2, eps, scale] = factors;
  for_each_element(arrays, [=](const AdamArrays<T>& a, std::int64_t i) {
    const T p = a.parameter[i] * a.keep;
    const T g = a.gradient[i] * scale + a.weight_decay * p;
    const T m = beta1 * a.mean[i] + rest1 * g;
    const T v = beta2 * a.square[i] + rest2 * g * g;
    a.mean[i] = m;
    a.square[i] = v;
    a.parameter[i] = p - a.rate * m / (std::sqrt(v) * a.root + eps);
  });
}

template <class T>
void move_towards(std::span<const PairArrays<T>> arrays, T rate) {
  for_each_element(arrays, [rate](const PairArrays<T>& a, std::int64_t i) {
    a.left[i] += rate * (a.right[i] - a.left[i]);
  });
}

template <class T>
double sum_of_squares(const T* values, std::int64_t n) {
  const std::int64_t blocks = (n + block - 1) / block;
  std::vector<double> parts(static_cast<std::size_t>(blocks));
#pragma omp parallel for schedule(static) if (n > parallel_elements)
  for (std::int64_t b = 0; b < blocks; ++b)
    parts[static_cast<std::size_t>(b)] = block_squares(values + b * block, std::min(block, n - b * block));
  double sum = 0;
  for (const double part : parts) sum += part;
  return sum;
}

template void sgd(std::span<const SgdArrays<float>>, const SgdFactors<float>&);
template void sgd(std::span<const SgdArrays<double>>, const SgdFactors<double>&);
template void adam(std::span<const AdamArrays<float>>, const AdamFactors<float>&);
template void adam(std::span<const AdamArrays<double>>, const AdamFactors<double>&);
template void move_towards(std::span<const PairArrays<float>>, float);
template void move_towards(std::span<const PairArrays<double>>, double);
template double sum_of_squares(const float*, std::int64_t);
template double sum_of_squares(const double*, std::int64_t);

}  // namespace fq::cpu
