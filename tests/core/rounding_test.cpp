#include "fakequant/core/reference/rounding.h"

#include <bit>
#include <cmath>

#include <gtest/gtest.h>

namespace fq::detail {
namespace {

/// Every sign and exponent, and significands around each tie of binary16.
TEST(Rounding, ToF16IsTheConversionThereAndBack) {
  for (std::uint32_t high = 0; high < 0x80000; ++high)
    for (const std::uint32_t low : {0u, 1u, 0xfffu, 0x1000u, 0x1001u, 0x1fffu}) {
      const auto v = std::bit_cast<float>(high << 13 | low);
      const auto expected = static_cast<float>(float16(v)), got = rounded<float16>(v);
      const bool same = std::bit_cast<std::uint32_t>(expected) == std::bit_cast<std::uint32_t>(got);
      ASSERT_TRUE(same || (std::isnan(expected) && std::isnan(got))) << v << " gave " << got;
    }
}

}  // namespace
}  // namespace fq::detail
