#include "fakequant/core/numerics/detail/formulas.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/core/numerics/detail/inverse_formulas.h"
#include "fakequant/core/quantized.h"

namespace fq::formulas_test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

/// Half to even of quarters / 4, in integers.
std::int64_t round_quarters(std::int64_t quarters) {
  const std::int64_t floor = quarters >> 2, rest = quarters & 3;
  return rest > 2 || (rest == 2 && (floor & 1) != 0) ? floor + 1 : floor;
}

std::vector<float> code_vector(const QuantizedTensor& q) { return code_values(q).to_vector<float>(); }

std::vector<bool> mask_bits(const QuantizedTensor& q) {
  const auto* bits = static_cast<const std::uint8_t*>(q.mask.raw());
  std::vector<bool> out;
  for (std::int64_t i = 0; i < q.mask.numel(); ++i) out.push_back(((bits[i / 8] >> (i % 8)) & 1) != 0);
  return out;
}

class IntegerFormats : public ::testing::TestWithParam<int> {};

TEST_P(IntegerFormats, RoundEveryQuarterOfEveryCode) {
  const int bits = GetParam();
  for (const auto& format :
       {IntFormat{bits, false, false}, IntFormat{bits, false, true}, IntFormat{bits, true, false}}) {
    const std::int64_t upper = (std::int64_t{1} << (format.is_unsigned ? bits : bits - 1)) - 1;
    const std::int64_t lower = format.is_unsigned ? 0 : format.narrow_range ? -upper : -upper - 1;
    ASSERT_EQ(format.upper(), upper);
    ASSERT_EQ(format.lower(), lower);
    const float scale = 0x1p-5f;
    std::vector<float> x;
    std::vector<std::int64_t> quarters;
    for (std::int64_t q = 4 * lower - 9; q <= 4 * upper + 9; ++q) {
      quarters.push_back(q);
      x.push_back(static_cast<float>(q) * 0.25f * scale);
    }
    const float amax = static_cast<float>(upper) * scale;
    const auto grid = Grid::from_amax(format, Granularity::per_tensor(), Tensor::scalar(amax));
    ASSERT_EQ(grid.scale.item(), scale);
    const auto q = quantize(Tensor::from(x, {static_cast<std::int64_t>(x.size())}), grid);
    const auto codes = code_vector(q);
    const auto mask = mask_bits(q);
    const auto values = dequantize(q).to_vector<float>();
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto expected = static_cast<float>(std::clamp(round_quarters(quarters[i]), lower, upper));
      ASSERT_EQ(codes[i], expected) << bits << " bits, x " << x[i];
      ASSERT_EQ(values[i], expected * scale);
      ASSERT_EQ(mask[i], (format.is_unsigned ? 0 : -4 * upper) <= quarters[i] && quarters[i] <= 4 * upper)
          << x[i];
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Bits, IntegerFormats, ::testing::Range(2, 17));

/// OCP OFP8: bias 7, no infinities, the largest 448 = 0x7e.
double e4m3_value(int magnitude) {
  const int exponent = magnitude >> 3, mantissa = magnitude & 7;
  return exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
}

TEST(DivideByInverse, MatchesDivisionBitwiseAtEveryEdge) {
  std::int64_t others = 0;
  for (std::uint32_t s = 0; s < 1u << 23; s += 2039)
    for (const float power : {0x1p-100f, 1.0f, 0x1p99f})
      for (int k = 1; k < 100'000; k += 1 + k / 7)
        for (int offset = -3; offset <= 3; ++offset) {
          const float d = std::bit_cast<float>(0x3f800000u | s) * power;
          const float edge = static_cast<float>(k) * d;
          const float p = std::bit_cast<float>(std::bit_cast<std::int32_t>(edge) + offset);
          others += scalar::divide_by_inverse(p, d, 1.0f / d) != p / d ? 1 : 0;
        }
  EXPECT_EQ(others, 0);
}

TEST(E4m3, RoundTripsEveryCode) {
  for (int code = 0; code < 256; ++code) {
    const float value = scalar::decode_e4m3(static_cast<std::uint8_t>(code));
    if ((code & 0x7f) == 0x7f) {
      EXPECT_TRUE(std::isnan(value));
      EXPECT_EQ(scalar::encode_e4m3(value) & 0x7f, 0x7f);
      continue;
    }
    EXPECT_EQ(std::fabs(value), e4m3_value(code & 0x7f));
    EXPECT_EQ(std::signbit(value), code >= 128);
    EXPECT_EQ(scalar::encode_e4m3(value), code);
    EXPECT_EQ(std::bit_cast<std::uint32_t>(scalar::round_e4m3(value)), std::bit_cast<std::uint32_t>(value));
  }
}

TEST(E4m3, RoundsHalfToEven) {
  for (int code = 0; code < 0x7e; ++code) {
    const double low = e4m3_value(code), high = e4m3_value(code + 1);
    const auto middle = static_cast<float>((low + high) / 2);  // exact: one more bit than the codes
    ASSERT_EQ(middle, (low + high) / 2);
    const double even = code % 2 == 0 ? low : high;
    for (const float sign : {1.0f, -1.0f}) {
      EXPECT_EQ(scalar::round_e4m3(sign * middle), sign * even) << code;
      EXPECT_EQ(scalar::round_e4m3(sign * std::nextafter(middle, 0.0f)), sign * low) << code;
      EXPECT_EQ(scalar::round_e4m3(sign * std::nextafter(middle, kInf)), sign * high) << code;
    }
  }
}

TEST(E4m3, SaturatesAndKeepsNaN) {
  for (const float x : {448.0f, 449.0f, 464.0f, 480.0f, 1e30f, kInf}) {
    EXPECT_EQ(scalar::round_e4m3(x), 448.0f);
    EXPECT_EQ(scalar::round_e4m3(-x), -448.0f);
  }
  EXPECT_TRUE(std::isnan(scalar::round_e4m3(kNaN)));
  EXPECT_TRUE(std::signbit(scalar::round_e4m3(-0.0f)));
  EXPECT_TRUE(std::signbit(scalar::round_e4m3(-0x1p-149f)));
}

TEST(Quantize, PerAxisUsesEachChannelsScale) {
  const std::vector<float> amax{0.5f, 3.0f, 127.0f};
  std::vector<float> x;
  for (int i = 0; i < 2 * 3 * 40; ++i) x.push_back(std::sin(static_cast<float>(i) * 0.7f) * 100.0f);
  const auto grid =
      Grid::from_amax(IntFormat{8, false, true}, Granularity::per_axis(1), Tensor::from(amax, {3}));
  const Tensor input = Tensor::from(x, {2, 3, 8, 5});
  for (const Layout layout : {Layout::row_major, Layout::channels_last}) {
    const auto q = quantize(input.to(layout), grid);
    const auto codes = code_values(q).to_vector<float>();
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float scale = amax[i / 40 % 3] / 127.0f;
      ASSERT_EQ(codes[i], std::clamp(std::nearbyint(x[i] / scale), -127.0f, 127.0f));
    }
  }
}

TEST(Quantize, HandlesDeadChannelsAndSpecials) {
  const Tensor amax = Tensor::from({0.0f, 0x1p-24f, 0x1.000002p-24f, 1.0f});
  const Tensor x = Tensor::from({kInf, -kInf, 0.0f, 0x1p-24f, 1.0f, -1.0f, 0.0f, 0x1p-24f, 1.0f, -1.0f, -0.0f,
                                 0x1p-24f, kInf, -kInf, -0.0f, 0x1p-130f},
                                {4, 4});
  const auto grid = Grid::from_amax(IntFormat{8}, Granularity::per_axis(0), amax);
  const auto q = quantize(x, grid);
  EXPECT_EQ(code_vector(q), (std::vector<float>{0, 0, 0, 0, 0, 0, 0, 0, 127, -128, 0, 127, 127, -128, 0, 0}));
  EXPECT_EQ(mask_bits(q), (std::vector<bool>{0, 0, 1, 0, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1}));
  EXPECT_EQ(grid.scale.to_vector<float>()[0], 0x1p-24f / 127.0f);
  const auto e4m3 = Grid::from_amax(FloatFormat{4, 3}, Granularity::per_axis(0), amax);
  EXPECT_EQ(e4m3.scale.to_vector<float>()[1], 1.0f / 448.0f);
  EXPECT_THROW(
      (void)quantize(Tensor::from({1.0f, kNaN}), Grid::from_amax(IntFormat{8}, {}, Tensor::scalar(1))),
      NumericError);
}

TEST(Quantize, PowerOfTwoScalesCoverAmax) {
  for (const float amax : {1.0f, 127.0f, 127.00001f, 0.3f, 1e-6f, 1e30f, 130048.02f, 6.0e37f}) {
    const auto grid = Grid::from_amax(IntFormat{8}, {}, Tensor::scalar(amax), "q", true);
    const auto scale = static_cast<float>(grid.scale.item());
    int exponent = 0;
    EXPECT_EQ(std::frexp(scale, &exponent), 0.5f) << amax;
    EXPECT_GE(scale, amax / 127.0f);
    EXPECT_LT(scale / 2, amax / 127.0f);
    EXPECT_EQ(grid.amax.item(), scale * 127.0f);
  }
}

TEST(Grid, RejectsInvalidRanges) {
  for (const double bad : {-1.0, static_cast<double>(kInf), static_cast<double>(kNaN)})
    EXPECT_THROW((void)Grid::from_amax(IntFormat{8}, {}, Tensor::scalar(bad)), ArgumentError);
}

}  // namespace
}  // namespace fq::formulas_test
