#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/train/data/loader.h"

namespace fq::data_augment_test {
namespace {

Tensor ramp(const Shape& shape) {
  std::vector<float> values(static_cast<std::size_t>(numel(shape)));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 1 + static_cast<float>(i % 97);
  return Tensor::from(values, shape);
}

Tensor changed(Tensor images, const AugmentOptions& options, std::vector<std::int64_t> samples,
               std::int64_t epoch = 0, float outside = 0) {
  const std::vector<float> background(static_cast<std::size_t>(images.dim(1)), outside);
  augment(images, samples, options, 1, epoch, background);
  return images;
}

TEST(Augment, ChangesNothingByDefault) {
  EXPECT_TRUE(bitwise_equal(changed(ramp({2, 3, 5, 7}), {}, {0, 1}), ramp({2, 3, 5, 7})));
  EXPECT_FALSE(AugmentOptions{}.any());
}

TEST(Augment, DependsOnSeedEpochAndSampleOnly) {
  const AugmentOptions options{
      .shift = 2, .rotation = 20, .scale = 0.2, .shear = 0.2, .hflip = 0.5, .cutout = 2};
  const auto both = changed(ramp({2, 1, 8, 8}), options, {4, 9});
  const auto second = changed(ramp({2, 1, 8, 8}).slice(1, 2).clone(), options, {9});
  EXPECT_TRUE(bitwise_equal(both.slice(1, 2), second));
  const auto other_epoch = changed(ramp({2, 1, 8, 8}), options, {4, 9}, 1);
  EXPECT_FALSE(bitwise_equal(other_epoch, both));
  const auto other_sample = changed(ramp({2, 1, 8, 8}), options, {5, 9});
  EXPECT_FALSE(bitwise_equal(other_sample.slice(0, 1), both.slice(0, 1)));
}

TEST(Augment, TransformsEveryChannelAlike) {
  Tensor images = Tensor::zeros({1, 2, 8, 8});
  for (int i = 0; i < 64; ++i)
    images.mutable_data<float>()[i] = images.mutable_data<float>()[64 + i] = static_cast<float>(i * i % 31);
  const auto out = changed(images, {.shift = 2, .rotation = 30, .cutout = 3}, {3}).to_vector<float>();
  EXPECT_TRUE(std::equal(out.begin(), out.begin() + 64, out.begin() + 64));
}

TEST(Augment, FlipMirrorsEverySecondImage) {
  int mirrored = 0;
  for (std::int64_t sample = 0; sample < 200; ++sample) {
    const auto out = changed(ramp({1, 1, 2, 3}), {.hflip = 0.5}, {sample}).to_vector<float>();
    if (out == std::vector<float>{3, 2, 1, 6, 5, 4})
      ++mirrored;
    else
      EXPECT_EQ(out, (std::vector<float>{1, 2, 3, 4, 5, 6}));
  }
  EXPECT_GT(mirrored, 70);
  EXPECT_LT(mirrored, 130);
}

// A plane a + b x + c y is resampled exactly by bilinear interpolation, up to rounding: its value at the
// centre moves by the shift, and does not change when the image is rotated about its centre.
TEST(Augment, WarpsAPlaneExactly) {
  Tensor plane = Tensor::zeros({1, 1, 21, 21});
  for (int y = 0; y < 21; ++y)
    for (int x = 0; x < 21; ++x)
      plane.mutable_data<float>()[y * 21 + x] = static_cast<float>(3 * x + 100 * y);
  const float centre = 3 * 10 + 100 * 10;
  for (std::int64_t sample = 0; sample < 50; ++sample) {
    const auto rotated_image =
        changed(plane.clone(), {.rotation = 30, .scale = 0.2, .shear = 0.2}, {sample}).to_vector<float>();
    EXPECT_NEAR(rotated_image[10 * 21 + 10], centre, 1e-3);
    const auto moved = changed(plane.clone(), {.shift = 2}, {sample}).to_vector<float>();
    EXPECT_LE(std::abs(moved[10 * 21 + 10] - centre), 2 * 103 + 1e-3);
    EXPECT_NEAR(moved[11 * 21 + 10] - moved[10 * 21 + 10], 100, 1e-3);
    EXPECT_NEAR(moved[10 * 21 + 11] - moved[10 * 21 + 10], 3, 1e-3);
  }
}

TEST(Augment, RotationKeepsAndScalingChangesLengths) {
  Tensor plane = Tensor::zeros({1, 1, 41, 41});
  for (int y = 0; y < 41; ++y)
    for (int x = 0; x < 41; ++x) plane.mutable_data<float>()[y * 41 + x] = static_cast<float>(x);
  double smallest = 9, largest = 0;
  for (std::int64_t sample = 0; sample < 100; ++sample) {
    const auto slope = [&](const AugmentOptions& options) {
      const auto out = changed(plane.clone(), options, {sample}).to_vector<float>();
      return std::hypot(out[20 * 41 + 21] - out[20 * 41 + 20], out[21 * 41 + 20] - out[20 * 41 + 20]);
    };
    EXPECT_NEAR(slope({.rotation = 45}), 1, 1e-5);
    smallest = std::min<double>(smallest, slope({.scale = 0.5}));
    largest = std::max<double>(largest, slope({.scale = 0.5}));
  }
  EXPECT_NEAR(smallest, 1 / 1.5, 0.05);  // 100 draws come near the ends of the range
  EXPECT_NEAR(largest, 1 / 0.5, 0.15);
}

TEST(Augment, FillsTheOutsideWithBackground) {
  const auto out = changed(Tensor::full({1, 1, 4, 4}, 5), {.shift = 1000}, {2}, 0, -3).to_vector<float>();
  EXPECT_EQ(out, std::vector<float>(16, -3));
}

TEST(Augment, CutoutErasesAtMostOneSquare) {
  int most = 0;
  for (std::int64_t sample = 0; sample < 100; ++sample) {
    const auto out =
        changed(Tensor::full({1, 1, 8, 8}, 5), {.cutout = 3}, {sample}, 0, -1).to_vector<float>();
    const auto erased = static_cast<int>(std::count(out.begin(), out.end(), -1.0f));
    EXPECT_GE(erased, 1);
    EXPECT_EQ(std::count(out.begin(), out.end(), 5.0f), 64 - erased);
    most = std::max(most, erased);
  }
  EXPECT_EQ(most, 9);
}

TEST(Augment, RejectsUnsupportedInput) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_THROW(changed(ramp({1, 1, 2, 2}), {.shift = -1}, {0}), ArgumentError);
  EXPECT_THROW(changed(ramp({1, 1, 2, 2}), {.rotation = infinity}, {0}), ArgumentError);
  EXPECT_THROW(changed(ramp({1, 1, 2, 2}), {.scale = 1}, {0}), ArgumentError);
  EXPECT_THROW(changed(ramp({1, 1, 2, 2}), {.cutout = -1}, {0}), ArgumentError);
  EXPECT_THROW(changed(ramp({1, 1, 2, 2}), {.shift = 1}, {0, 1}), ArgumentError);
  EXPECT_THROW(changed(ramp({1, 4}), {.shift = 1}, {0}), ArgumentError);
  EXPECT_THROW(changed(Tensor::zeros({1, 1, 2, 2}, DType::f64), {.shift = 1}, {0}), ArgumentError);
}

}  // namespace
}  // namespace fq::data_augment_test
