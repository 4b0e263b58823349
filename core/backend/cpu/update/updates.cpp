#include <algorithm>
#include <vector>

#include "fakequant/core/backend/cpu/elementwise/map.h"
#include "fakequant/core/backend/cpu/update/update_kernels.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/detail/convert.h"
#include "fakequant/core/numerics/detail/formulas.h"

namespace fq::cpu {

using detail::PairArrays, detail::SwapArrays;

namespace {

constexpr std::int64_t block = 8192;

/// Calls f(array, begin, end) for blocks of every array.
template <class Arrays, class F>
void visit_blocks(const Arrays& arrays, F f) {
  std::int64_t total = 0;
  for (const auto& a : arrays) total += a.n;
// One parallel region for all arrays: a network has hundreds of small ones.
#pragma omp parallel if (total > parallel_elements)
  for (const auto& a : arrays) {
// Arrays are independent, so threads need not wait for each other between them.
#pragma omp for schedule(static) nowait
    for (std::int64_t i = 0; i < a.n; i += block) f(a, i, std::min(a.n, i + block));
  }
}

template <class T>
double block_squares(const T* values, std::int64_t n) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < n; ++i) sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  return sum;
}

template <class T>
// Blocks are added in order, so the norm does not depend on the threads.
double square_sum(const T* values, std::int64_t n) {
  const std::int64_t blocks = (n + block - 1) / block;
  std::vector<double> parts(static_cast<std::size_t>(blocks));
#pragma omp parallel for schedule(static) if (n > parallel_elements)
  for (std::int64_t b = 0; b < blocks; ++b)
    parts[static_cast<std::size_t>(b)] = block_squares(values + b * block, std::min(block, n - b * block));
  double sum = 0;
  for (const double part : parts) sum += part;
  return sum;
}

}  // namespace

template <class T>
void sgd(std::span<const SgdArrays<T>> arrays, const SgdFactors<T>& factors, Device) {
  visit_blocks(arrays, [&](const auto& a, auto begin, auto end) { update(a, factors, begin, end); });
}

template <class T>
void adam(std::span<const AdamArrays<T>> arrays, const AdamFactors<T>& factors, Device) {
  visit_blocks(arrays, [&](const auto& a, auto begin, auto end) { update(a, factors, begin, end); });
}

template <class T>
void move_towards(std::span<const PairArrays<T>> arrays, T rate, Device) {
  visit_blocks(arrays, [rate](const PairArrays<T>& a, std::int64_t begin, std::int64_t end) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i)
      a.left[i] = scalar::moving_average(a.left[i], a.right[i], rate);
  });
}

// Optimizers other than SGD and Adam: one formula per element, without vectors.
template <class T>
void rule(const detail::AnyRuleList<T>& arrays, Device) {
  std::visit(
      [](const auto& list) {
        visit_blocks(list, [](const auto& a, std::int64_t begin, std::int64_t end) {
          for (std::int64_t i = begin; i < end; ++i) a.update(i);
        });
      },
      arrays);
}

void swap_contents(std::span<const SwapArrays> arrays, Device) {
  visit_blocks(arrays, [](const SwapArrays& a, std::int64_t begin, std::int64_t end) {
    std::swap_ranges(a.left + begin, a.left + end, a.right + begin);
  });
}

template void sgd(std::span<const SgdArrays<float>>, const SgdFactors<float>&, Device);
template void sgd(std::span<const SgdArrays<double>>, const SgdFactors<double>&, Device);
template void adam(std::span<const AdamArrays<float>>, const AdamFactors<float>&, Device);
template void adam(std::span<const AdamArrays<double>>, const AdamFactors<double>&, Device);
template void move_towards(std::span<const PairArrays<float>>, float, Device);
template void move_towards(std::span<const PairArrays<double>>, double, Device);
template void rule(const detail::AnyRuleList<float>&, Device);
template void rule(const detail::AnyRuleList<double>&, Device);

double sum_of_squares(std::span<const Tensor> tensors, Device) {
  // Tensors are added in order.
  double sum = 0;
  for (const auto& t : tensors)
    detail::visit_float(t.dtype(), "norm",
                        [&]<class T>(T) { sum += square_sum(t.data<T>(t.layout()), t.numel()); });
  return sum;
}

}  // namespace fq::cpu
