#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "fakequant/core/backend/cpu/engine/exact.h"
#include "fakequant/core/backend/cpu/engine/integer_products.h"

namespace fq::int16_products_test {
namespace {

/// Codes with each pair of extremes next to each other, and values between.
template <class Code>
std::vector<Code> codes(std::int64_t count, int lowest, int highest, unsigned state) {
  std::vector<Code> out;
  for (std::int64_t i = 0; i < count; ++i) {
    state = state * 1664525U + 1013904223U;
    const unsigned draw = state >> 16;
    const int value = draw % 3 == 0   ? lowest
                      : draw % 3 == 1 ? highest
                                      : lowest + int(draw % unsigned(highest - lowest));
    out.push_back(static_cast<Code>(value));
  }
  return out;
}

template <class X, class W>
std::vector<std::int32_t> expected_products(std::int64_t batch, std::int64_t m, std::int64_t n,
                                            std::int64_t k, const std::vector<X>& x,
                                            const std::vector<W>& w) {
  std::vector<std::int32_t> sums;
  for (std::int64_t i = 0; i < batch; ++i)
    for (std::int64_t r = 0; r < m; ++r)
      for (std::int64_t c = 0; c < n; ++c) {
        std::int32_t sum = 0;
        for (std::int64_t j = 0; j < k; ++j)
          sum += int{x[std::size_t((i * m + r) * k + j)]} * int{w[std::size_t((i * n + c) * k + j)]};
        sums.push_back(sum);
      }
  return sums;
}

template <class X, class W>
void expect_exact(std::int64_t batch, std::int64_t m, std::int64_t n, std::int64_t k) {
  const auto x = codes<X>(batch * m * k, std::numeric_limits<X>::min(), std::numeric_limits<X>::max(), 1);
  const auto w = codes<W>(batch * n * k, std::numeric_limits<W>::min(), std::numeric_limits<W>::max(), 2);
  std::vector<std::int32_t> found(std::size_t(batch * m * n), -1);
  const detail::Codes a{x.data(), cpp_dtype<X>, 255}, b{w.data(), cpp_dtype<W>, 255};
  cpu::int16_products(batch, m, n, k, a, b, found.data());
  EXPECT_EQ(found, expected_products(batch, m, n, k, x, w)) << batch << ' ' << m << ' ' << n << ' ' << k;
  if (batch > 1) return;
  std::fill(found.begin(), found.end(), -1);
  cpu::exact_gemm(m, n, k, a, b, found.data());
  EXPECT_EQ(found, expected_products(batch, m, n, k, x, w)) << m << ' ' << n << ' ' << k;
}

TEST(Int16Products, AreExactForEveryShape) {
  for (const std::int64_t m : {1, 2, 3, 5, 67})
    for (const std::int64_t n : {1, 3, 4, 9})
      for (const std::int64_t k : {1, 31, 32, 33, 518}) {
        expect_exact<std::int8_t, std::int8_t>(1, m, n, k);
        expect_exact<std::uint8_t, std::int8_t>(1, m, n, k);
      }
}

TEST(Int16Products, AreExactForUnsignedWeightsAndPairs) {
  expect_exact<std::int8_t, std::uint8_t>(1, 2, 5, 40);
  expect_exact<std::uint8_t, std::uint8_t>(1, 1, 5, 40);
  expect_exact<std::uint8_t, std::int8_t>(3, 1, 6, 50);
  expect_exact<std::int8_t, std::int8_t>(3, 70, 6, 1041);
}

TEST(WordProducts, HandleEmptyInput) {
  expect_exact<std::int8_t, std::int8_t>(1, 3, 5, 0);
  expect_exact<std::int8_t, std::int8_t>(1, 1, 5, 0);
  expect_exact<std::int8_t, std::int8_t>(1, 0, 5, 7);
  expect_exact<std::int8_t, std::int8_t>(2, 4, 0, 7);
}

}  // namespace
}  // namespace fq::int16_products_test
