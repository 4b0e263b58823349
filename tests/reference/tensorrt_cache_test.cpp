#include <cmath>

#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/core/quantized.h"
#include "fakequant/reference/tensorrt.h"

namespace fq::tensorrt_cache_test {
namespace {

TEST(TensorrtCache, EntriesAreTheScaleBits) {
  EXPECT_EQ(tensorrt::calibration_cache_entry(127.0f), "3f800000");
  EXPECT_EQ(tensorrt::calibration_cache_scale("3f800000"), 1.0f);
  for (const float amax : {0.0f, 1e-30f, 0.7f, 3e38f})
    EXPECT_EQ(tensorrt::calibration_cache_scale(tensorrt::calibration_cache_entry(amax)), amax / 127.0f);
}

TEST(TensorrtCache, RejectsInvalidEntries) {
  for (const char* entry : {"", "3f80000", "3f8000000", "3f80000g", "-f800000", "0x3f8000"})
    EXPECT_THROW((void)tensorrt::calibration_cache_scale(entry), ArgumentError) << entry;
  for (const float amax : {-1.0f, NAN, INFINITY})
    EXPECT_THROW((void)tensorrt::calibration_cache_entry(amax), ArgumentError) << amax;
}

TEST(Grid, SupportsEightBitScales) {
  const Tensor amax = Tensor::from({0.0f, 6.0f, 6.5f, 1e-20f});
  const auto by = Granularity::per_axis(0);
  const Grid mx = Grid::block_scaled(FloatFormat{2, 1}, by, amax, {8, 0}, 1);
  EXPECT_EQ(mx.scale.to_vector<float>(), (std::vector<float>{0x1p-127f, 1, 2, 0x1p-69f}));
  EXPECT_EQ(mx.amax.to_vector<float>()[2], 12.0f);
  const Grid nvfp4 = Grid::block_scaled(FloatFormat{2, 1}, by, amax, {4, 3}, 448 * 6);
  EXPECT_EQ(nvfp4.scale.to_vector<float>(), (std::vector<float>{0x1p-9f, 1, 1.125f, 0x1p-9f}));
  EXPECT_EQ(nvfp4.amax.to_vector<float>()[2], 6.75f);
  EXPECT_THROW((void)Grid::block_scaled(FloatFormat{2, 1}, by, amax, {5, 2}, 1), ArgumentError);
  EXPECT_THROW((void)Grid::block_scaled(FloatFormat{2, 1}, by, amax, {4, 3}, NAN), ArgumentError);
  EXPECT_THROW((void)Grid::block_scaled(FloatFormat{2, 1}, by, Tensor::from({-1.0f}), {8, 0}, 1),
               ArgumentError);
}

}  // namespace
}  // namespace fq::tensorrt_cache_test
