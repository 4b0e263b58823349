#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakequant/calib/calibrator.h"
#include "fakequant/core/error.h"

namespace fq::max_calibrator_test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

Tensor ramp(const Shape& shape) {
  std::vector<float> v(static_cast<std::size_t>(numel(shape)));
  for (std::size_t i = 0; i < v.size(); ++i)
    v[i] = static_cast<float>((i * 7919) % 1009) * (i % 3 == 0 ? -0.25f : 0.125f);
  return Tensor::from(v, shape);
}

/// The definition, element by element.
std::vector<float> slow_amax(const Tensor& x, const std::vector<int>& kept) {
  const auto v = x.to_vector<float>();
  std::vector<float> out;
  for (std::size_t i = 0; i < v.size(); ++i) {
    std::size_t at = 0, rest = i, inner = v.size();
    for (int a = 0; a < x.rank(); ++a) {
      inner /= static_cast<std::size_t>(x.dim(a));
      const std::size_t index = rest / inner;
      rest %= inner;
      if (std::ranges::find(kept, a) != kept.end()) at = at * static_cast<std::size_t>(x.dim(a)) + index;
    }
    if (at >= out.size()) out.resize(at + 1);
    out[at] = std::max(out[at], std::fabs(v[i]));
  }
  return out;
}

Tensor calibrated_amax(const Tensor& x, Axes axis = {}) {
  MaxCalibrator calibrator(std::move(axis));
  calibrator.collect(x);
  return calibrator.compute_amax();
}

TEST(MaxCalibrator, ReducesEveryAxisOfEveryLayout) {
  const Tensor x = ramp({5, 67, 9, 11});
  for (const Layout layout : {Layout::row_major, Layout::channels_last})
    for (const std::vector<int>& kept : {std::vector<int>{}, {0}, {1}, {2}, {3}, {0, 1}, {0, 3}, {1, 2, 3}}) {
      const Tensor amax = calibrated_amax(x.to(layout), kept);
      EXPECT_EQ(amax.to_vector<float>(), slow_amax(x, kept));
      EXPECT_EQ(amax.rank(), kept.empty() ? 0 : 4);
    }
  EXPECT_EQ(calibrated_amax(x, -3).shape(), (Shape{1, 67, 1, 1}));
}

TEST(MaxCalibrator, ReducesLargeTensorsInParallel) {
  const Tensor x = ramp({600, 1000});
  for (const std::vector<int>& kept : {std::vector<int>{}, {0}, {1}})
    EXPECT_EQ(calibrated_amax(x, kept).to_vector<float>(), slow_amax(x, kept));
}

TEST(MaxCalibrator, RunsOverBatches) {
  MaxCalibrator calibrator(0);
  calibrator.collect(Tensor::from({1.0f, -5.0f, 2.0f, 0.5f}, {2, 2}));
  calibrator.collect(Tensor::from({-4.0f, 1.0f, -3.0f, 0.25f}, {2, 2}));
  EXPECT_EQ(calibrator.compute_amax().to_vector<float>(), (std::vector<float>{5, 3}));
  EXPECT_EQ(calibrator.minimum(), -5.0f);
  calibrator.reset();
  EXPECT_TRUE(calibrator.empty());
  calibrator.collect(Tensor::from({1.0f, 2.0f, 3.0f, 4.0f}, {1, 4}));
  EXPECT_EQ(calibrator.compute_amax().shape(), Shape{});
  EXPECT_EQ(calibrator.minimum(), 1.0f);
}

TEST(MaxCalibrator, IsPerTensorWithoutReducedAxes) {
  EXPECT_EQ(calibrated_amax(Tensor::from({1.0f, -3.0f, 2.0f}), 0).shape(), Shape{});
  EXPECT_EQ(calibrated_amax(Tensor::from({1.0f, -3.0f}, {2, 1}), 0).shape(), (Shape{2, 1}));
}

TEST(MaxCalibrator, KeepsSixteenBitTypes) {
  const Tensor amax = calibrated_amax(Tensor::from({1.0f, -3.1f}).to(DType::bf16));
  EXPECT_EQ(amax.dtype(), DType::bf16);
  EXPECT_EQ(amax.item(), 3.09375);
  EXPECT_EQ(calibrated_amax(Tensor::from({1.0, -3.1})).dtype(), DType::f32);
}

TEST(MaxCalibrator, RejectsInvalidInputWithoutChange) {
  MaxCalibrator calibrator(0);
  const auto compute = [&] { (void)calibrator.compute_amax(); };
  EXPECT_THAT(compute, ThrowsMessage<ArgumentError>(HasSubstr("calibrate with at least one batch")));
  calibrator.collect(Tensor::zeros({0, 4}));
  calibrator.collect(Tensor::empty({2, 4}, DType::f32, Device::meta()));
  EXPECT_THAT(compute, ThrowsMessage<ArgumentError>(HasSubstr("calibrate with at least one batch")));
  calibrator.collect(Tensor::from({1.0f, 2.0f}, {2, 1}));
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
    EXPECT_THAT(
        [&] {
          calibrator.collect(Tensor::from({bad, 9.0f}, {2, 1}));
        },
        ThrowsMessage<NumericError>(HasSubstr("calibrate with finite values")));
  EXPECT_THAT(
      [&] {
        calibrator.collect(Tensor::from({9.0f, 9.0f, 9.0f}, {3, 1}));
      },
      ThrowsMessage<ArgumentError>(HasSubstr("use batches of one shape")));
  EXPECT_THROW(calibrator.collect(Tensor::from({std::int32_t{1}})), ArgumentError);
  EXPECT_THROW(calibrator.collect(Tensor()), ArgumentError);
  EXPECT_THROW((void)calibrated_amax(ramp({2, 2}), 2), ArgumentError);
  EXPECT_EQ(calibrator.compute_amax().to_vector<float>(), (std::vector<float>{1, 2}));
}

TEST(MovingAverageCalibrator, FollowsTheFormula) {
  MovingAverageCalibrator calibrator({}, 0.9);
  const float c = static_cast<float>(1.0 - 0.9);
  float expected = 2.0f;
  calibrator.collect(Tensor::from({-2.0f, 1.0f}));
  for (const float v : {3.0f, 0.1f, 7.0f}) {
    calibrator.collect(Tensor::from({v, -0.05f}));
    expected = expected + c * (v - expected);
  }
  EXPECT_EQ(calibrator.compute_amax().item(), expected);
  EXPECT_THROW(MovingAverageCalibrator({}, 1.0), ArgumentError);
}

TEST(MakeCalibrator, ListsEveryMethodAndSuggestsNames) {
  EXPECT_EQ(make_calibrator("max")->method(), "max");
  EXPECT_EQ(make_calibrator("moving_average")->method(), "moving_average");
  EXPECT_THAT([] { (void)make_calibrator("maks"); },
              ThrowsMessage<ArgumentError>(HasSubstr("did you mean 'max'")));
}

}  // namespace
}  // namespace fq::max_calibrator_test
