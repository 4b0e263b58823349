#include "fakequant/reference/observers/observers.h"

#include <cmath>
#include <limits>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakequant/core/error.h"

namespace fq::torch_ref::observers_test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const Tensor kFirst = Tensor::from({-1.0f, 2.0f, 3.0f, -4.0f}, {2, 2});
const Tensor kSecond = Tensor::from({1.0f, 6.0f, -5.0f, 0.0f}, {2, 2});

template <class F>
void expect_error(F f, const char* part) {
  EXPECT_THAT([&] { (void)f(); }, ThrowsMessage<ArgumentError>(HasSubstr(part)));
}

TEST(Observers, RecordMinimumAndMaximum) {
  MinMaxObserver observer;
  observer.observe(kFirst);
  observer.observe(Tensor::empty({0}));
  observer.observe(kSecond.to(DType::bf16));
  EXPECT_EQ(observer.min_val().item(), -5);
  EXPECT_EQ(observer.max_val().item(), 6);
  const auto [scale, zero] = observer.calculate_qparams();
  EXPECT_EQ(scale.to_vector<float>(), (std::vector<float>{11 / 255.0f}));
  EXPECT_EQ(zero.to_vector<std::int32_t>(), (std::vector<std::int32_t>{116}));
}

TEST(Observers, AverageEachChannel) {
  MovingAveragePerChannelMinMaxObserver observer(0.5, -1);
  observer.observe(kFirst);
  observer.observe(kSecond);
  EXPECT_EQ(observer.min_val().to_vector<float>(), (std::vector<float>{-3, -2}));
  EXPECT_EQ(observer.max_val().to_vector<float>(), (std::vector<float>{2, 4}));
}

TEST(Observers, ComputeZeroPointOfSymmetricSchemes) {
  const auto zero = [](ObserverOptions options) {
    options.qscheme = QScheme::per_tensor_symmetric;
    MinMaxObserver observer(options);
    observer.observe(kFirst);
    return observer.calculate_qparams().zero_point.to_vector<std::int64_t>()[0];
  };
  EXPECT_EQ(zero({.dtype = DType::i8}), 0);
  EXPECT_EQ(zero({}), 128);
  EXPECT_EQ(zero({.quant_min = 0, .quant_max = 127}), 63);
}

TEST(Observers, SupportAReducedRange) {
  MinMaxObserver observer({.dtype = DType::i8, .reduce_range = true});
  observer.observe(Tensor::from({-1.0f, 1.0f}));
  EXPECT_EQ(observer.calculate_qparams().scale.to_vector<float>()[0], 2 / 127.0f);
}

TEST(Observers, RejectInvalidInput) {
  expect_error([] { return MinMaxObserver().calculate_qparams(); }, "nothing was observed");
  expect_error([] { return HistogramObserver().calculate_qparams(); }, "nothing was observed");
  expect_error([] { return MinMaxObserver({.dtype = DType::i32}); }, "use i8 or u8");
  expect_error([] { return MinMaxObserver({.eps = 0}); }, "must be positive");
  expect_error([] { return MinMaxObserver({.quant_min = 0}); }, "use both");
  expect_error([] { return MinMaxObserver({.quant_min = 1, .quant_max = 7}); }, "use a range with 0");
  expect_error([] { return MinMaxObserver({.quant_min = -1, .quant_max = 255}); }, "more than 256 codes");
  expect_error([] { return MinMaxObserver({.qscheme = QScheme::per_channel_affine}); }, "per channel");
  expect_error([] { return MovingAverageMinMaxObserver(0.1, {.qscheme = QScheme::per_channel_symmetric}); },
               "per channel");
  expect_error([] { return HistogramObserver({.qscheme = QScheme::per_channel_affine}); }, "per channel");
  expect_error([] { return HistogramObserver({}, 1); }, "use 2 or more");
  expect_error(
      [] { return MinMaxObserver({.qscheme = QScheme::per_tensor_symmetric, .reduce_range = true}); },
      "no reduced range");
  expect_error([] { return qscheme("affine"); }, "per_tensor_affine");
  PerChannelMinMaxObserver observer(1);
  observer.observe(kFirst);
  expect_error([&] { return observer.observe(Tensor::zeros({2, 3})); }, "observe one tensor only");
  expect_error([&] { return observer.observe(Tensor::zeros({2})); }, "axis 1");
  expect_error([&] { return observer.observe(Tensor::zeros({2, 2}, DType::i32)); }, "use a float type");
  MinMaxObserver broken;
  broken.observe(Tensor::from({std::numeric_limits<float>::quiet_NaN()}));
  EXPECT_THROW((void)broken.calculate_qparams(), NumericError);
  MinMaxObserver later;
  later.observe(kFirst);
  later.observe(Tensor::from({std::numeric_limits<float>::quiet_NaN()}));
  later.observe(kFirst);
  EXPECT_THROW((void)later.calculate_qparams(), NumericError);
}

TEST(HistogramObserver, KeepsItsTotalCountWhenTheRangeGrows) {
  HistogramObserver observer({}, 64);
  for (int i = 1; i <= 4; ++i) observer.observe(Tensor::from({-1.0f * i, 0.3f, 0.2f, 2.0f * i}));
  const auto& counts = observer.histogram();
  EXPECT_NEAR(std::accumulate(counts.begin(), counts.end(), 0.0), 16, 1e-4);
  EXPECT_EQ(observer.min_val(), -4);
  EXPECT_EQ(observer.max_val(), 8);
}

TEST(HistogramObserver, DropsAnOutlier) {
  std::vector<float> values(1000000);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i));
  values[7] = 3;
  HistogramObserver observer;
  observer.observe(Tensor::from(values, {1000000}));
  EXPECT_LT(observer.calculate_qparams().scale.item(), 3 / 255.0);
}

TEST(HistogramObserver, DropsInfinityAndRejectsNaN) {
  HistogramObserver observer;
  observer.observe(Tensor::from({std::numeric_limits<float>::infinity()}));
  expect_error([&] { return observer.calculate_qparams(); }, "nothing was observed");
  EXPECT_THROW(observer.observe(Tensor::from({std::numeric_limits<float>::quiet_NaN()})), NumericError);
}

using torchao::AffineQuantizedMinMaxObserver, torchao::IntegerType, torchao::MappingType, torchao::PerAxis;

TEST(AffineObserver, ChoosesParametersFromAllBatches) {
  AffineQuantizedMinMaxObserver observer(MappingType::asymmetric, {4, true}, PerAxis{0});
  observer.observe(kFirst);
  observer.observe(kSecond);
  const auto [scale, zero] = observer.calculate_qparams();
  const auto both = torchao::choose_qparams_affine(
      Tensor::from({-1.0f, 2.0f, 1.0f, 6.0f, 3.0f, -4.0f, -5.0f, 0.0f}, {2, 4}), MappingType::asymmetric,
      {1, 4}, IntegerType{4, true});
  EXPECT_TRUE(bitwise_equal(scale, both.scale));
  EXPECT_TRUE(bitwise_equal(zero, both.zero_point));
}

TEST(AffineObserver, RejectsInvalidInput) {
  AffineQuantizedMinMaxObserver observer(MappingType::symmetric, {}, PerAxis{0});
  expect_error([&] { return observer.calculate_qparams(); }, "nothing was observed");
  observer.observe(kFirst);
  expect_error([&] { return observer.observe(Tensor::zeros({3, 2})); }, "observe one tensor only");
  expect_error([&] { return observer.observe(kFirst.to(DType::f16)); }, "observe one tensor only");
  expect_error([&] { return observer.observe(Tensor::scalar(1)); }, "axis");
  expect_error(
      [] {
        return AffineQuantizedMinMaxObserver(MappingType::symmetric, {}, PerAxis{0}, {.range = {-300, {}}});
      },
      "quant_min -300");
}

}  // namespace
}  // namespace fq::torch_ref::observers_test
