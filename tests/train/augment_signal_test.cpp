#include <algorithm>
#include <cmath>
#include <set>

#include <gtest/gtest.h>

#include "fakequant/train/data/augment.h"

namespace fq::augment_signal_test {
namespace {

const std::vector<float> kSignal{1, 2, 3, 4, 5, 10, 20, 30, 40, 50};  // [2, 5]

std::vector<float> changed(const AugmentOptions& options, std::int64_t key, Shape shape = {1, 2, 5}) {
  Tensor x = Tensor::from(kSignal, shape);
  const std::vector<std::int64_t> keys{key};
  augment(x, keys, options, 1, 0, std::vector<float>(static_cast<std::size_t>(shape[1]), 0.0f));
  return x.to_vector<float>();
}

TEST(AugmentSignal, ShiftsInTimeAndFillsWithZeros) {
  std::set<std::vector<float>> seen;
  for (std::int64_t key = 0; key < 100; ++key) seen.insert(changed({.shift = 1}, key));
  EXPECT_EQ(seen, (std::set<std::vector<float>>{
                      {0, 1, 2, 3, 4, 0, 10, 20, 30, 40}, kSignal, {2, 3, 4, 5, 0, 20, 30, 40, 50, 0}}));
  for (std::int64_t key = 0; key < 20; ++key)
    EXPECT_EQ(changed({.shift = 1e6}, key), std::vector<float>(10, 0.0f)) << key;
}

TEST(AugmentSignal, GainIsOneFactorForAllChannels) {
  float least = 9, most = 0;
  for (std::int64_t key = 0; key < 100; ++key) {
    const auto out = changed({.gain = 0.5}, key);
    for (std::size_t i = 0; i < 10; ++i) EXPECT_NEAR(out[i], out[0] * kSignal[i], 1e-5 * double(kSignal[i]));
    least = std::min(least, out[0]), most = std::max(most, out[0]);
  }
  EXPECT_NEAR(least, 0.5, 0.05);
  EXPECT_NEAR(most, 1.5, 0.05);
}

TEST(AugmentSignal, ReversesEveryChannel) {
  EXPECT_EQ(changed({.reverse = 1}, 0), (std::vector<float>{5, 4, 3, 2, 1, 50, 40, 30, 20, 10}));
}

TEST(AugmentSignal, MasksTheSameSpanOfEveryChannel) {
  std::set<std::int64_t> widths;
  for (std::int64_t key = 0; key < 100; ++key) {
    const auto out = changed({.time_mask = 3}, key);
    const auto zeros = std::count(out.begin(), out.begin() + 5, 0.0f);
    widths.insert(zeros);
    for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(out[i] == 0, out[i + 5] == 0);
    const auto first = std::find(out.begin(), out.begin() + 5, 0.0f);
    EXPECT_TRUE(std::all_of(first, first + zeros, [](float v) { return v == 0; }));
  }
  EXPECT_EQ(widths, (std::set<std::int64_t>{0, 1, 2, 3}));
}

TEST(AugmentSignal, NoiseHasTheRequestedSigma) {
  Tensor x = Tensor::zeros({1, 1, 20000});
  const std::vector<std::int64_t> keys{5};
  augment(x, keys, {.noise = 0.3}, 1, 0, {0});
  double sum = 0, squares = 0;
  for (const float v : x.to_vector<float>()) sum += double(v), squares += double(v) * double(v);
  EXPECT_NEAR(sum / 20000, 0, 0.3 * 4 / std::sqrt(20000));  // four deviations of a mean
  EXPECT_NEAR(std::sqrt(squares / 20000), 0.3, 0.3 * 4 / std::sqrt(40000));
}

TEST(AugmentSignal, DropsValuesOfRowsAndIds) {
  Tensor row = Tensor::full({1, 10000}, 7), ids = row.to(DType::i64);
  const std::vector<std::int64_t> keys{5};
  augment(row, keys, {.drop = 0.2}, 1, 0, std::vector<float>(10000, 0.0f));
  augment(ids, keys, {.drop = 0.2}, 1, 0, {});
  const auto left = ids.to_vector<std::int64_t>();
  EXPECT_NEAR(static_cast<double>(std::count(left.begin(), left.end(), 0)), 2000, 160);  // four deviations
  const auto values = row.to_vector<float>();
  EXPECT_TRUE(
      std::equal(left.begin(), left.end(), values.begin(), [](auto a, float b) { return float(a) == b; }));
  EXPECT_TRUE(std::all_of(left.begin(), left.end(), [](auto v) { return v == 0 || v == 7; }));
}

}  // namespace
}  // namespace fq::augment_signal_test
