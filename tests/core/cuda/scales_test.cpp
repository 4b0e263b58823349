#include <bit>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "cuda_device.h"
#include "fakequant/core/error.h"
#include "fakequant/core/numerics/detail/grid_formulas.h"
#include "fakequant/core/quantized.h"

namespace fq::cuda_scales_test {
namespace {

class CudaScales : public testing::Test {
 protected:
  void SetUp() override { FQ_NEEDS_CUDA(); }
};

/// Numbers of all sizes, the largest ones left out where scales times bounds would overflow.
Tensor ranges(std::uint32_t step) {
  std::vector<float> out{0.0f, -0.0f, 0x1p-24f, std::nextafter(0x1p-24f, 1.0f), 1.0f, 448.0f, 0x1p-149f};
  for (std::uint64_t word = 1; word < std::bit_cast<std::uint32_t>(0x1p120f); word += step)
    out.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(word)));
  return Tensor::from(out, {static_cast<std::int64_t>(out.size())});
}

void expect_equal(const Grid& a, const Grid& b) {
  EXPECT_EQ(a.scale.device(), Device::cuda());
  EXPECT_TRUE(bitwise_equal(a.scale, b.scale)) << to_string(a.format);
  EXPECT_TRUE(bitwise_equal(a.amax, b.amax)) << to_string(a.format);
  EXPECT_EQ(a.unit, b.unit);
  EXPECT_EQ(a.scale_bits, b.scale_bits);
}

std::vector<Format> some_formats() {
  return {IntFormat{}, IntFormat{4, true, false}, FloatFormat{4, 3}, FloatFormat{2, 1}, FloatFormat{5, 2}};
}

TEST_F(CudaScales, MatchTheHost) {
  const Tensor amax = ranges(999983);
  const auto by = Granularity::per_axis(0);
  for (const auto& format : some_formats())
    for (const bool pow2 : {false, true})
      expect_equal(Grid::from_amax(format, by, amax.to(Device::cuda()), "q", pow2),
                   Grid::from_amax(format, by, amax, "q", pow2));
}

TEST_F(CudaScales, EightBitScalesMatchTheHost) {
  const Tensor amax = ranges(999983);
  const auto by = Granularity::per_group(1);
  for (const auto& format : some_formats())
    for (const NumBits bits : {NumBits(4, 3), NumBits(8, 0)})
      for (const float global : {0.0f, 3.7f, 1e20f})
        expect_equal(Grid::block_scaled(format, by, amax.to(Device::cuda()), bits, global, "q"),
                     Grid::block_scaled(format, by, amax, bits, global, "q"));
}

TEST_F(CudaScales, ReportInvalidRangesOnRead) {
  for (const float bad : {-1.0f, std::numeric_limits<float>::infinity(), std::nanf("")}) {
    Grid grid;
    const Tensor amax = Tensor::from({1.0f, bad}).to(Device::cuda());
    EXPECT_NO_THROW(grid = Grid::from_amax(IntFormat{}, Granularity::per_axis(0), amax, "fc"));
    try {
      (void)grid.scale.to_vector<float>();
      FAIL() << bad;
    } catch (const NumericError& error) {
      EXPECT_STREQ(
          error.what(),
          "[quantizer] amax of 'fc' is negative, infinite or NaN: it must be finite and not negative");
    }
  }
}

/// By the exponent that frexp finds.
float next_power(float v) {
  int exponent = 0;
  const float fraction = std::frexp(v, &exponent);
  if (v == 0 || exponent < -126) return 0x1p-127f;
  return std::ldexp(1.0f, std::min(fraction == 0.5f ? exponent - 1 : exponent, 127));
}

TEST(Scales, ComputePowersOfTwoFromTheBits) {
  constexpr auto most = std::bit_cast<std::uint32_t>(std::numeric_limits<float>::max());
  for (std::uint64_t word = 0; word <= most; word += 997) {
    const auto v = std::bit_cast<float>(static_cast<std::uint32_t>(word));
    ASSERT_EQ(scalar::power_of_two(v), next_power(v)) << v;
  }
  for (int e = -149; e <= 127; ++e)
    for (const float v : {std::ldexp(1.0f, e), std::nextafter(std::ldexp(1.0f, e), 0.0f),
                          std::nextafter(std::ldexp(1.0f, e), std::numeric_limits<float>::max())})
      ASSERT_EQ(scalar::power_of_two(v), next_power(v)) << v;
  EXPECT_EQ(scalar::power_of_two(std::numeric_limits<float>::max()), 0x1p127f);
}

}  // namespace
}  // namespace fq::cuda_scales_test
