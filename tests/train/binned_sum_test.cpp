#include "fakequant/train/ranks/detail/binned_sum.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "fakequant/core/error.h"

namespace fq::binned_sum_test {
namespace {

using Terms = std::vector<std::vector<double>>;

/// Terms of many magnitudes: the largest elements of two terms often differ by a bin or more.
Terms random_terms(std::size_t count, std::size_t size, double spread) {
  std::mt19937_64 random(7);
  std::normal_distribution<double> normal;
  Terms out(count);
  for (auto& term : out) {
    const double scale = std::exp(spread * normal(random));
    for (std::size_t i = 0; i < size; ++i)
      term.push_back(scale * normal(random) * std::exp(3 * normal(random)));
  }
  return out;
}

std::vector<double> sum(const Terms& terms) {
  BinnedSum out(std::int64_t(terms[0].size()));
  for (const auto& term : terms) EXPECT_TRUE(out.add(term));
  return out.values();
}

TEST(BinnedSum, IsInvariantToOrder) {
  std::mt19937 random(1);
  for (const double spread : {0.0, 1.0, 10.0, 40.0}) {
    Terms terms = random_terms(40, 501, spread);
    const auto first = sum(terms);
    for (int i = 0; i < 20; ++i) {
      std::ranges::shuffle(terms, random);
      ASSERT_EQ(sum(terms), first) << spread;
    }
  }
}

TEST(BinnedSum, IsWithinItsErrorBound) {
  for (const double spread : {0.0, 1.0, 10.0}) {
    const Terms terms = random_terms(64, 200, spread);
    double largest = 0;
    for (const auto& term : terms)
      for (const double v : term) largest = std::max(largest, std::abs(v));
    const auto sums = sum(terms);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      long double exact = 0;
      for (const auto& term : terms) exact += term[i];
      EXPECT_LE(std::abs(double(exact - sums[i])), 64 * std::ldexp(largest, -36));
    }
  }
}

TEST(BinnedSum, KeepsNumbersAtTheEndsOfBins) {
  for (int e = -100; e <= 100; ++e)
    for (const double v :
         {std::ldexp(1.0, e), double(std::nextafter(std::ldexp(1.0f, e), 0.0f)), -std::ldexp(1.5, e)}) {
      EXPECT_EQ(sum({{v}})[0], v) << e;
      EXPECT_EQ(sum({{v}, {0.0}, {v}, {-v}})[0], v) << e;
    }
  EXPECT_EQ(sum({{1e-300}, {0.0}})[0], 0.0);
  EXPECT_EQ(sum({{1e300}})[0], 1e300);
}

TEST(BinnedSum, RejectsUnsupportedTerms) {
  BinnedSum sums(2);
  const std::vector<float> fine{1, 2}, nan{1, std::numeric_limits<float>::quiet_NaN()},
      infinite{std::numeric_limits<float>::infinity(), 1}, three{1, 2, 3};
  EXPECT_TRUE(sums.add(fine));
  EXPECT_FALSE(sums.add(nan));
  EXPECT_FALSE(sums.add(infinite));
  EXPECT_THROW((void)sums.add(three), ArgumentError);
  EXPECT_EQ(sums.values(), (std::vector<double>{1, 2}));
}

}  // namespace
}  // namespace fq::binned_sum_test
