#include "fakequant/core/ops/norm.h"

#include <cmath>

#include <gtest/gtest.h>

#include "core/gradient_check.h"
#include "fakequant/core/error.h"

namespace fq::norm_test {
namespace {

Variable ones(std::int64_t n) { return Tensor::full({n}, 1.0); }
Variable zeros(std::int64_t n) { return Tensor::zeros({n}); }

TEST(BatchNorm, RunningStatisticsMatchPyTorch) {
  // torch.nn.BatchNorm1d(1, momentum=0.1) on 1, 2, 3, 6: mean 3, biased variance 3.5, unbiased 14/3.
  const Variable x = Tensor::from({1.0f, 2.0f, 3.0f, 6.0f}, {4, 1});
  Tensor mean = Tensor::zeros({1}), variance = Tensor::full({1}, 1.0);
  const Variable y = ops::batch_norm(x, ones(1), zeros(1), mean, variance, true);
  EXPECT_FLOAT_EQ(static_cast<float>(mean.item()), 0.3f);
  EXPECT_FLOAT_EQ(static_cast<float>(variance.item()), static_cast<float>(0.9 + 0.1 * 14.0 / 3.0));
  EXPECT_NEAR(y.tensor().to_vector<float>()[3], 3.0 / std::sqrt(3.5 + 1e-5), 1e-6);
}

TEST(BatchNorm, EvaluationUsesAndKeepsTheRunningStatistics) {
  const Variable x = Tensor::from({1.0f, 5.0f}, {1, 2, 1, 1});
  const Tensor mean = Tensor::from({1.0f, 3.0f}), variance = Tensor::from({1.0f, 4.0f});
  const auto versions = mean.version() + variance.version();
  const Variable y = ops::batch_norm(x, Tensor::from({1.0f, 2.0f}), Tensor::from({0.5f, -1.0f}), mean,
                                     variance, false, 0.1, 0.0);
  EXPECT_EQ(y.tensor().to_vector<float>(), (std::vector<float>{0.5f, 1.0f}));
  EXPECT_EQ(mean.version() + variance.version(), versions);
}

TEST(BatchNorm, ReturnsChannelsLastImages) {
  const Tensor x = test::random_values({2, 3, 4, 4}, 1).to(DType::f32);
  EXPECT_EQ(ops::batch_norm(x, {}, {}, {}, {}, true).layout(), Layout::channels_last);
  EXPECT_EQ(ops::batch_norm(x.reshape({2, 3, 16}), {}, {}, {}, {}, true).layout(), Layout::row_major);
}

TEST(BatchNorm, IsAccurateForALargeMean) {
  // Values around 1000 with deviation 1: a sum of squares in f32 would lose the variance altogether.
  const Tensor offset = test::random_values({20000, 2}, 3, 999.0, 1001.0).to(DType::f32);
  const auto exact =
      ops::batch_norm(offset.to(DType::f64), {}, {}, {}, {}, true).tensor().to_vector<double>();
  const auto y = ops::batch_norm(offset, {}, {}, {}, {}, true).tensor().to_vector<float>();
  for (std::size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(y[i], exact[i], 2e-4);  // 1000 has an ulp of 6e-5
}

TEST(BatchNorm, EmptyBatchKeepsTheRunningStatistics) {
  Tensor mean = Tensor::full({3}, 0.5), variance = Tensor::full({3}, 2.0);
  (void)ops::batch_norm(Tensor::empty({0, 3, 2, 2}), {}, {}, mean, variance, true);
  EXPECT_EQ(mean.to_vector<float>(), (std::vector<float>{0.5f, 0.5f, 0.5f}));
  EXPECT_EQ(variance.to_vector<float>(), (std::vector<float>{2, 2, 2}));
}

TEST(BatchNorm, RejectsMismatchedShapes) {
  const Variable x = Tensor::zeros({2, 3, 2, 2});
  EXPECT_THROW((void)ops::batch_norm(x, ones(2), zeros(3), {}, {}, true), ArgumentError);
  EXPECT_THROW((void)ops::batch_norm(x, ones(3), zeros(3), Tensor::zeros({4}), {}, true), ArgumentError);
  EXPECT_THROW((void)ops::batch_norm(x, ones(3), zeros(3), {}, {}, false), ArgumentError);
  EXPECT_THROW((void)ops::batch_norm(Tensor::zeros({1, 3}), ones(3), zeros(3), {}, {}, true), ArgumentError);
  EXPECT_THROW((void)ops::batch_norm(Tensor::zeros({3}), ones(3), zeros(3), {}, {}, true), ArgumentError);
  EXPECT_THROW((void)ops::batch_norm(x, Variable(Tensor::full({3}, 1.0, DType::f64)), {}, {}, {}, true),
               ArgumentError);
}

TEST(LayerNorm, NormalizesEachRow) {
  const Variable x = Tensor::from({1.0f, 3.0f, -2.0f, 2.0f}, {2, 2});
  const auto y = ops::layer_norm(x, {}, {}, 1, 0.0).tensor().to_vector<float>();
  EXPECT_EQ(y, (std::vector<float>{-1, 1, -1, 1}));
}

TEST(LayerNorm, RejectsMismatchedShapes) {
  const Variable x = Tensor::zeros({2, 3});
  EXPECT_THROW((void)ops::layer_norm(x, ones(2), {}), ArgumentError);
  EXPECT_THROW((void)ops::layer_norm(x, {}, {}, 3), ArgumentError);
  EXPECT_THROW((void)ops::layer_norm(x, {}, {}, 0), ArgumentError);
}

}  // namespace
}  // namespace fq::norm_test
