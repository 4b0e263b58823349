#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/train/data/augment.h"
#include "fakequant/train/data/loader.h"
#include "fakequant/train/losses.h"

namespace fq::augment_mixing_test {
namespace {

constexpr std::int64_t kCount = 500;

/// Image i is full of i, its class i mod 3.
Batch make_batch(std::int64_t count, const Shape& sample = {2, 8, 6}) {
  Shape shape{count};
  shape.insert(shape.end(), sample.begin(), sample.end());
  std::vector<float> x;
  std::vector<std::int64_t> y;
  for (std::int64_t i = 0; i < count; ++i) {
    x.insert(x.end(), static_cast<std::size_t>(numel(sample)), static_cast<float>(i));
    y.push_back(i % 3);
  }
  return {Tensor::from(x, shape), Tensor::from(y, {count})};
}

std::vector<std::int64_t> make_keys(std::int64_t count) {
  std::vector<std::int64_t> keys(static_cast<std::size_t>(count));
  std::iota(keys.begin(), keys.end(), std::int64_t{100});
  return keys;
}

Batch mixed(const AugmentOptions& options, Batch batch = make_batch(kCount), std::int64_t classes = 3) {
  mix(batch, make_keys(batch.size()), options, 1, 0, classes);
  return batch;
}

/// Returns the weight of sample i's own class in its mixed label.
double share(const Batch& batch, std::int64_t i) {
  return static_cast<double>(batch.y.data<float>()[i * 3 + i % 3]);
}

TEST(AugmentMixing, WeightsMatchTheRemainingArea) {
  const Batch out = mixed({.mixup = 0.4});
  ASSERT_EQ(out.y.shape(), (Shape{kCount, 3}));
  for (std::int64_t i = 0; i < kCount; ++i) {
    const std::int64_t other = (i + kCount - 1) % kCount;
    const float* y = out.y.data<float>() + i * 3;
    EXPECT_NEAR(y[0] + y[1] + y[2], 1, 1e-6);
    if (i % 3 == other % 3) continue;
    const double left = share(out, i);
    for (std::int64_t p = 0; p < 96; ++p)
      EXPECT_NEAR(double(out.x.data<float>()[i * 96 + p]), left * double(i) + (1 - left) * double(other),
                  1e-3);
  }
}

TEST(AugmentMixing, CutmixPastesARectangleIntoEveryChannel) {
  const Batch out = mixed({.cutmix = 1});
  int cut = 0;
  for (std::int64_t i = 1; i < kCount; ++i) {
    const float* x = out.x.data<float>() + i * 96;
    std::int64_t top = 8, bottom = -1, left = 6, right = -1, pasted = 0;
    for (std::int64_t p = 0; p < 48; ++p) {
      EXPECT_EQ(x[p], x[p + 48]);
      EXPECT_TRUE(x[p] == float(i) || x[p] == float(i - 1));
      if (x[p] == float(i)) continue;
      ++pasted;
      top = std::min(top, p / 6), bottom = std::max(bottom, p / 6);
      left = std::min(left, p % 6), right = std::max(right, p % 6);
    }
    if (pasted > 0) {
      ++cut;
      EXPECT_EQ(pasted, (bottom - top + 1) * (right - left + 1));
    }
    EXPECT_NEAR(share(out, i), 1 - double(pasted) / 48, 1e-6);
  }
  EXPECT_GT(cut, kCount / 2);
}

TEST(AugmentMixing, CutmixPastesSpansOfSignals) {
  const Batch out = mixed({.cutmix = 1}, make_batch(60, {2, 20}));
  for (std::int64_t i = 1; i < 60; ++i) {
    const float* x = out.x.data<float>() + i * 40;
    int pasted = 0, edges = 0;
    for (int t = 0; t < 20; ++t) {
      EXPECT_EQ(x[t], x[t + 20]);
      pasted += x[t] == float(i - 1);
      edges += t > 0 && x[t] != x[t - 1];
    }
    EXPECT_LE(edges, 2);
    EXPECT_NEAR(share(out, i), 1 - pasted / 20.0, 1e-6);
  }
}

// Beta(a, a) has a mean of 1/2 and a variance of 1 / (4 (2a + 1)).
TEST(AugmentMixing, WeightsFollowABetaDistribution) {
  for (const double alpha : {0.2, 1.0, 4.0}) {
    const auto out = mixed({.mixup = alpha}, make_batch(3000, {1}));
    double sum = 0, squares = 0;
    for (std::int64_t i = 0; i < 3000; ++i) sum += share(out, i), squares += std::pow(share(out, i) - 0.5, 2);
    EXPECT_NEAR(sum / 3000, 0.5, 0.03) << alpha;
    EXPECT_NEAR(squares / 3000, 0.25 / (2 * alpha + 1), 0.015) << alpha;
  }
}

TEST(AugmentMixing, ChoosesMixupOrCutmixAtRandom) {
  const Batch out = mixed({.mixup = 5, .cutmix = 5});
  int whole = 0;
  for (std::int64_t i = 1; i < kCount; ++i) {
    const float v = out.x.data<float>()[i * 96];
    whole += v == float(i) || v == float(i - 1);
  }
  EXPECT_GT(whole, kCount / 3);
  EXPECT_LT(whole, kCount * 2 / 3);
}

TEST(AugmentMixing, AveragesRegressionTargets) {
  Batch batch = make_batch(4, {1});
  batch.y = Tensor::from(std::vector<float>{0, 10, 20, 30}, {4});
  const Batch out = mixed({.mixup = 1}, batch, 0);
  ASSERT_EQ(out.y.shape(), (Shape{4}));
  for (std::int64_t i = 0; i < 4; ++i) EXPECT_NEAR(out.y.data<float>()[i], 10 * out.x.data<float>()[i], 1e-4);
  const Batch as_numbers = mixed({.mixup = 1}, make_batch(4, {1}), 0);
  EXPECT_EQ(as_numbers.y.shape(), (Shape{4}));
}

TEST(AugmentMixing, KeepsOneSampleAndNamesErrors) {
  const Batch alone = mixed({.mixup = 1}, make_batch(1));
  EXPECT_TRUE(bitwise_equal(alone.x, make_batch(1).x));
  EXPECT_EQ(alone.y.to_vector<float>(), (std::vector<float>{1, 0, 0}));
  EXPECT_THROW(mixed({.mixup = 1}, {make_batch(2).x, {}}), ArgumentError);
  EXPECT_THROW(mixed({.mixup = 1}, {make_batch(2).x, Tensor::zeros({2, 8, 6}, DType::i64)}), ArgumentError);
  EXPECT_THROW(mixed({.cutmix = 1}, make_batch(2, {5})), ArgumentError);
  EXPECT_THROW(mixed({.mixup = 1}, make_batch(4), 2), ArgumentError);  // label 2 of two classes
}

// -sum w t log softmax: with all of a share at one class it is the cross entropy of that class.
TEST(AugmentMixing, SoftTargetsHaveWeightsAndSmoothing) {
  const Variable y(Tensor::from(std::vector<float>{1, 2, 0.5f, -1, 0, 3}, {2, 3}));
  const Tensor hard = Tensor::from(std::vector<std::int64_t>{1, 2}, {2});
  const Tensor soft = Tensor::from(std::vector<float>{0, 1, 0, 0, 0, 1}, {2, 3});
  for (const double smoothing : {0.0, 0.3}) {
    const losses::CrossEntropyOptions options{.label_smoothing = smoothing};
    EXPECT_NEAR(losses::soft_cross_entropy(y, soft, options).item(),
                losses::cross_entropy(y, hard, options).item(), 1e-6);
    const auto loss = make_loss({.kind = "cross_entropy", .label_smoothing = smoothing});
    EXPECT_NEAR(loss(y, soft).item(), loss(y, hard).item(), 1e-6);
  }
  // torch 2.15: F.cross_entropy(y, t, weight=[1, 2, 3], label_smoothing=0.1)
  const Tensor shares = Tensor::from(std::vector<float>{0.25f, 0.75f, 0, 0, 0.4f, 0.6f}, {2, 3});
  const auto weighted =
      make_loss({.kind = "cross_entropy", .label_smoothing = 0.1, .class_weights = {1, 2, 3}});
  EXPECT_NEAR(weighted(y, shares).item(), 1.9466331, 1e-5);
  EXPECT_THROW((void)make_loss({.kind = "cross_entropy", .ignore_index = 1})(y, shares), ArgumentError);
}

}  // namespace
}  // namespace fq::augment_mixing_test
