#include "fakequant/core/numerics/detail/minifloat.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace fq::minifloat_test {
namespace {

const std::vector<std::pair<int, int>> kFormats{{4, 3}, {5, 2}, {3, 2}, {2, 3},
                                                {2, 1}, {1, 2}, {3, 1}, {2, 2}};

TEST(Minifloat, DecodesEveryCode) {
  for (const auto& [e, m] : kFormats) {
    const Minifloat f = Minifloat::finite(e, m);
    for (int code = 0; code < 1 << (1 + e + m); ++code) {
      const float value = f.decode(static_cast<std::uint8_t>(code));
      EXPECT_EQ(f.encode(value), code) << e << "," << m;
      EXPECT_EQ(f.round(value), value);
      EXPECT_LE(std::fabs(value), f.max);
    }
  }
}

TEST(Minifloat, RoundsToTheNearestCodeAndHalfToEven) {
  for (const auto& [e, m] : kFormats) {
    const Minifloat f = Minifloat::finite(e, m);
    const int codes = 1 << (e + m);
    for (int code = 0; code + 1 < codes; ++code) {
      const float a = f.decode(static_cast<std::uint8_t>(code)),
                  b = f.decode(static_cast<std::uint8_t>(code + 1)), middle = (a + b) / 2;
      EXPECT_EQ(f.round(middle), code % 2 == 0 ? a : b);
      EXPECT_EQ(f.round(std::nextafter(middle, 0.0f)), a);
      EXPECT_EQ(f.round(-std::nextafter(middle, b)), -b);
    }
  }
}

TEST(Minifloat, SupportsOcpFormatsAndSpecials) {
  const float inf = std::numeric_limits<float>::infinity();
  const Minifloat e4m3 = Minifloat::of({4, 3}), e5m2 = Minifloat::of({5, 2});
  EXPECT_EQ(e4m3.max, 448.0f);
  EXPECT_EQ(Minifloat::finite(4, 3).max, 480.0f);
  EXPECT_EQ(e5m2.max, 57344.0f);
  EXPECT_EQ(Minifloat::of({2, 1}).max, 6.0f);
  EXPECT_EQ(e4m3.round(inf), 448.0f);
  EXPECT_TRUE(std::isnan(e4m3.decode(0x7f)));
  EXPECT_TRUE(std::isnan(e4m3.round(std::nanf(""))));
  EXPECT_EQ(e4m3.encode(std::nanf("")), 0x7f);
  EXPECT_EQ(e5m2.decode(0xfc), -inf);
  EXPECT_TRUE(std::isnan(e5m2.decode(0x7d)));
  EXPECT_TRUE(std::signbit(e4m3.round(-0x1p-20f)));
}

TEST(Minifloat, E8m0ValuesArePowersOfTwo) {
  EXPECT_EQ(decode_e8m0(127), 1.0f);
  EXPECT_EQ(decode_e8m0(0), 0x1p-127f);
  EXPECT_EQ(decode_e8m0(encode_e8m0(127)), 0x1p127f);
  EXPECT_TRUE(std::isnan(decode_e8m0(255)));
}

}  // namespace
}  // namespace fq::minifloat_test
