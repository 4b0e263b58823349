#include "fakequant/reference/detail/rounding.h"

#include <bit>
#include <cmath>

#include <gtest/gtest.h>

namespace fq::detail::rounding_test {
namespace {

template <class T>
void expect_conversion(std::uint32_t word) {
  const auto v = std::bit_cast<float>(word);
  const auto expected = static_cast<float>(T(v)), got = rounded<T>(v);
  const bool same = std::bit_cast<std::uint32_t>(expected) == std::bit_cast<std::uint32_t>(got);
  ASSERT_TRUE(same || (std::isnan(expected) && std::isnan(got))) << v << " gave " << got;
}

/// Every sign and exponent, and significands around each tie.
TEST(Rounding, MatchesARoundTripConversion) {
  for (std::uint32_t high = 0; high < 0x80000; ++high)
    for (const std::uint32_t low : {0u, 1u, 0xfffu, 0x1000u, 0x1001u, 0x1fffu}) {
      expect_conversion<float16>(high << 13 | low);
      expect_conversion<bfloat16>(high << 13 | low);
    }
}

}  // namespace
}  // namespace fq::detail::rounding_test
