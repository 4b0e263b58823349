#pragma once

/// Numbers and comparisons for the tests of products.

#include <cmath>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "fakequant/core/detail/threads.h"
#include "fakequant/core/tensor.h"

namespace fq::test {

inline Tensor uniform(Shape shape, std::uint32_t seed, DType dtype = DType::f32) {
  std::mt19937 random(seed);
  std::vector<double> values(static_cast<std::size_t>(numel(shape)));
  for (auto& v : values) v = std::uniform_real_distribution<>(-1.0, 1.0)(random);
  return Tensor::from(values, std::move(shape)).to(DType::f32).to(dtype);
}

inline std::vector<double> doubles(const Tensor& x) { return x.to(DType::f64).to_vector<double>(); }

/// The largest difference against the largest value, or 1 where terms of size 1 cancel.
/// of it.
inline double difference(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(a.shape(), b.shape());
  const auto x = doubles(a), y = doubles(b);
  double largest = 0, off = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    largest = std::max(largest, std::abs(y[i]));
    off = std::isnan(x[i]) ? 1e30 : std::max(off, std::abs(x[i] - y[i]));
  }
  return off / std::max(largest, 1.0);
}
constexpr double kRounding = 2e-6;  // of the largest value: random signs keep f32 sums well inside k * 2^-24

/// Runs `f` with each count of threads and puts the caller's count back.
template <class F>
void run_with_threads(std::initializer_list<int> counts, F&& f) {
  const int before = detail::threads();
  for (const int count : counts) {
    detail::set_threads(count);
    f(count);
  }
  detail::set_threads(before);
}

}  // namespace fq::test
