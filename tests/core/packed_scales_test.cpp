#include "fakequant/core/detail/packed_scales.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakequant/core/error.h"

namespace fq::packed_scales_test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const Format kFp4 = FloatFormat{2, 1};

Grid make_grid(const std::vector<float>& amax, NumBits bits, float global) {
  return Grid::block_scaled(kFp4, Granularity::per_group(16),
                            Tensor::from(amax, {static_cast<std::int64_t>(amax.size())}), bits, global, "w");
}

Grid unpacked(const PackedScales& scales) {
  return unpack_scales(scales, kFp4, Granularity::per_group(16), "w");
}

TEST(PackedScales, RoundTripE4m3Scales) {
  for (const float global : {1e-7f, 0.3f, 448.0f * 6, 1e9f, 3e38f}) {
    std::vector<float> amax{0, global};
    for (int i = 0; i < 2000; ++i) amax.push_back(global * std::pow(0.99f, static_cast<float>(i)));
    const Grid grid = make_grid(amax, NumBits(4, 3), global);
    const PackedScales packed = pack_scales(grid);
    EXPECT_EQ(packed.values.dtype(), DType::f8_e4m3);
    EXPECT_EQ(packed.nbytes(), 2002 + 4);
    EXPECT_TRUE(bitwise_equal(unpacked(packed).scale, grid.scale)) << global;
    EXPECT_EQ(unpacked(packed).unit, grid.unit);
    EXPECT_EQ(unpacked(packed).scale_bits, 4);
  }
}

TEST(PackedScales, RoundTripPowersOfTwo) {
  std::vector<float> amax{0, 1e-45f, 3e38f};
  for (int e = -140; e < 127; ++e) amax.push_back(std::ldexp(1.3f, e));
  const Grid grid = make_grid(amax, NumBits(8, 0), 0);
  const PackedScales packed = pack_scales(grid);
  EXPECT_EQ(packed.values.dtype(), DType::f8_e8m0);
  EXPECT_EQ(packed.nbytes(), packed.values.numel());
  EXPECT_TRUE(bitwise_equal(unpacked(packed).scale, grid.scale));
  EXPECT_EQ(unpacked(packed).scale_bits, 1);
}

TEST(PackedScales, KeepFloats) {
  const Grid grid = Grid::from_amax(IntFormat{8}, Granularity::per_axis(0), Tensor::from({0.1f, 3.0f}), "w");
  const PackedScales packed = pack_scales(grid);
  EXPECT_EQ(packed.nbytes(), 8);
  const Grid back = unpack_scales(packed, grid.format, grid.granularity, "w");
  EXPECT_TRUE(bitwise_equal(back.scale, grid.scale));
  EXPECT_EQ(back.granularity, grid.granularity);
  EXPECT_EQ(back.name, "w");
  EXPECT_EQ(PackedScales{}.nbytes(), 0);
}

TEST(PackedScales, RejectInvalidScales) {
  const auto expect_error = [](const PackedScales& scales, const std::string& why) {
    EXPECT_THAT([&] { check_scales(scales, "w"); }, ThrowsMessage<ArgumentError>(HasSubstr(why)));
    EXPECT_THAT([&] { (void)unpacked(scales); }, ThrowsMessage<ArgumentError>(HasSubstr(why)));
  };
  const auto byte = [](std::uint8_t value, DType dtype) {
    Tensor out = Tensor::zeros({1}, dtype);
    *static_cast<std::uint8_t*>(out.mutable_raw()) = value;
    return out;
  };
  expect_error({}, "undefined tensor");
  expect_error({byte(1, DType::u8)}, "use f32, f8_e4m3 or f8_e8m0");
  expect_error({Tensor::from({1.0f, -1.0f})}, "a scale of 'w' is -1");
  expect_error({Tensor::from({std::numeric_limits<float>::infinity()})}, "is inf");
  expect_error({byte(0x7f, DType::f8_e4m3)}, "is nan");
  expect_error({byte(0x81, DType::f8_e4m3)}, "must be finite and positive");
  expect_error({byte(0xff, DType::f8_e8m0)}, "is nan");
  expect_error({byte(0x38, DType::f8_e4m3), std::numeric_limits<float>::quiet_NaN()}, "is nan");
}

}  // namespace
}  // namespace fq::packed_scales_test
