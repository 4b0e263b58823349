#include "fakequant/core/random.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/core/ops/activation.h"
#include "fakequant/core/ops/linear.h"

namespace fq::random_test {
namespace {

using Words = std::array<std::uint32_t, 4>;

TEST(Philox, KnownValues) {  // Random123 1.09, tests/kat_vectors, philox4x32 10
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const std::uint32_t all = 0xffffffff;
  EXPECT_EQ(philox({all, all, all, all}, {all, all}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Fill, NormalValuesHaveTheExpectedMoments) {
  Tensor x = Tensor::empty({200, 500});
  fill_normal(x, 1.0, 2.0, 42);
  double sum = 0, squares = 0;
  for (const float v : x.to_vector<float>()) {
    sum += v;
    squares += (v - 1.0) * (v - 1.0);
  }
  EXPECT_NEAR(sum / 1e5, 1.0, 5 * 2.0 / std::sqrt(1e5));  // five standard errors
  EXPECT_NEAR(squares / 1e5, 4.0, 5 * 4.0 * std::sqrt(2.0 / 1e5));
}

TEST(Fill, UniformValuesStayInTheirRange) {
  Tensor x = Tensor::empty({10001}, DType::f64);
  fill_uniform(x, -3.0, -1.0, 7, 1);
  double sum = 0;
  for (const double v : x.to_vector<double>()) {
    ASSERT_TRUE(v >= -3.0 && v < -1.0);
    sum += v;
  }
  EXPECT_NEAR(sum / 10001, -2.0, 5 * 2.0 / std::sqrt(12.0 * 10001));
}

TEST(Fill, DependsOnSeedAndStreamOnly) {
  const auto filled = [](Layout layout, std::uint64_t seed, std::uint64_t stream) {
    Tensor x = Tensor::empty({2, 3, 4, 5}, DType::f32, Device::cpu(), layout);
    fill_normal(x, 0, 1, seed, stream);
    return x;
  };
  const Tensor x = filled(Layout::row_major, 1, 2);
  EXPECT_TRUE(bitwise_equal(x, filled(Layout::channels_last, 1, 2)));
  EXPECT_FALSE(bitwise_equal(x, filled(Layout::row_major, 2, 2)));
  EXPECT_FALSE(bitwise_equal(x, filled(Layout::row_major, 1, 3)));
  Tensor shorter = Tensor::empty({7});
  fill_normal(shorter, 0, 1, 1, 2);
  EXPECT_TRUE(bitwise_equal(shorter, x.reshape({120}).slice(0, 7)));
  Tensor codes = Tensor::empty({2}, DType::i8);
  EXPECT_THROW(fill_uniform(codes, 0, 1, 1), ArgumentError);
}

std::vector<float> dropped(const Tensor& x, std::uint64_t step) {
  const RandomScope scope(5, step);
  return ops::dropout(x, 0.25, true).tensor().to_vector<float>();
}

/// Each of these draws; tests/own_numbers.cpp lets the second start as the first did.
class TestRandomNumbers : public testing::TestWithParam<int> {};

TEST_P(TestRandomNumbers, EachTestDrawsIndependentNumbers) {
  EXPECT_EQ(random_stream().seed, 0u);
  EXPECT_EQ(random_stream().op, 0u);
  (void)ops::dropout(Tensor::full({4}, 1.0), 0.25, true);
  EXPECT_EQ(random_stream().op, 1u);
}

INSTANTIATE_TEST_SUITE_P(Twice, TestRandomNumbers, testing::Values(0, 1));

TEST(Dropout, KeepsTheGivenFractionScaled) {
  const auto y = dropped(Tensor::full({40000}, 3.0), 0);
  int kept = 0;
  for (const float v : y) {
    ASSERT_TRUE(v == 0.0f || v == 4.0f);
    kept += v != 0.0f;
  }
  EXPECT_NEAR(kept, 30000, 5 * std::sqrt(40000 * 0.25 * 0.75));
}

TEST(Dropout, DependsOnStepOperatorAndLogicalElement) {
  const Tensor x = Tensor::full({2, 3, 4, 5}, 1.0);
  EXPECT_EQ(dropped(x, 1), dropped(x, 1));
  EXPECT_EQ(dropped(x, 1), dropped(x.to(Layout::channels_last), 1));
  EXPECT_NE(dropped(x, 1), dropped(x, 2));
  const RandomScope scope(5, 1);
  const auto first = ops::dropout(x, 0.25, true).tensor().to_vector<float>();
  EXPECT_EQ(first, dropped(x, 1));  // a nested scope leaves this one where it was
  EXPECT_NE(first, ops::dropout(x, 0.25, true).tensor().to_vector<float>());
}

/// The value of each unit of `size` elements that are kept or dropped together.
std::vector<float> units(const std::vector<float>& y, std::size_t size) {
  std::vector<float> out;
  for (std::size_t i = 0; i < y.size(); i += size) {
    for (std::size_t k = 1; k < size; ++k) EXPECT_EQ(y[i + k], y[i]) << i;
    out.push_back(y[i]);
  }
  return out;
}

TEST(Dropout, DropsWholeChannelsAndSamples) {
  const RandomScope scope(5, 1);
  const Variable x(Tensor::full({64, 32, 2, 3}, 1.0));
  const auto channels = units(ops::channel_dropout(x, 0.25, true).tensor().to_vector<float>(), 6);
  const auto samples = units(ops::drop_path(x, 0.25, true).tensor().to_vector<float>(), 32 * 6);
  for (const auto& [found, spread] : {std::pair{channels, 0.03}, {samples, 0.17}}) {
    const auto kept = std::ranges::count(found, 1.0f / 0.75f), gone = std::ranges::count(found, 0.0f);
    EXPECT_EQ(kept + gone, static_cast<std::ptrdiff_t>(found.size()));
    EXPECT_NEAR(double(gone) / double(found.size()), 0.25, spread);  // 3 deviations of the share
  }
}

/// Mean 0 and variance 1 stay, up to 4 deviations of the mean of 60,000 numbers.
TEST(Dropout, AlphaDropoutKeepsMeanAndVariance) {
  const RandomScope scope(5, 1);
  std::vector<float> values;
  for (int i = 0; i < 60000; ++i) values.push_back(i % 2 == 0 ? 1.0f : -1.0f);
  const Variable x(Tensor::from(values, {600, 100}));
  for (const double p : {0.05, 0.5}) {
    double sum = 0, squares = 0;
    for (const float v : ops::alpha_dropout(x, p, true).tensor().to_vector<float>()) {
      sum += v;
      squares += double(v) * double(v);
    }
    EXPECT_NEAR(sum / 60000, 0, 0.02);
    EXPECT_NEAR(squares / 60000, 1, 0.03);
  }
  const auto one = ops::alpha_dropout(x, 1.0, true).tensor().to_vector<float>();
  EXPECT_EQ(std::ranges::count(one, 0.0f), 60000);
}

TEST(Dropout, BlockDropoutDropsSquares) {
  const RandomScope scope(5, 1);
  const Variable x(Tensor::full({40, 4, 12, 12}, 1.0));
  const auto y = ops::drop_block2d(x, 0.1, 3, true).tensor().to_vector<float>();
  const auto gone = static_cast<double>(std::ranges::count(y, 0.0f));
  EXPECT_NEAR(gone / static_cast<double>(y.size()), 0.1, 0.02);  // blocks that overlap drop less
  double sum = 0;
  for (const float v : y) sum += v;
  EXPECT_NEAR(sum / static_cast<double>(y.size()), 1, 1e-4);
  for (std::size_t row = 0; row < y.size(); row += 12) {  // no hole is narrower than a block
    std::size_t run = 0;
    for (std::size_t i = 0; i <= 12; ++i) {
      if (i < 12 && y[row + i] == 0.0f) {
        ++run;
        continue;
      }
      EXPECT_TRUE(run == 0 || run >= 3) << row;
      run = 0;
    }
  }
  EXPECT_THROW((void)ops::drop_block2d(x, 0.1, 4, true), ArgumentError);
  EXPECT_THROW((void)ops::drop_block2d(x, 0.1, 13, true), ArgumentError);
}

TEST(Dropout, AllFormsAreIdentityInEvaluation) {
  const Variable x(Tensor::full({2, 3, 5, 5}, 1.0));
  for (const auto& y :
       {ops::channel_dropout(x, 0.5, false), ops::drop_path(x, 0.5, false), ops::alpha_dropout(x, 0.5, false),
        ops::drop_block2d(x, 0.5, 3, false), ops::channel_dropout(x, 0, true)})
    EXPECT_EQ(y.node(), x.node());
  EXPECT_THROW((void)ops::channel_dropout(x, -0.1, true), ArgumentError);
  EXPECT_THROW((void)ops::channel_dropout(Variable(Tensor::full({3}, 1.0)), 0.1, true), ArgumentError);
}

TEST(Dropout, IsIdentityInEvaluation) {
  const Variable x = Tensor::full({3}, 1.0);
  EXPECT_EQ(ops::dropout(x, 0.5, false).node(), x.node());
  EXPECT_EQ(ops::dropout(x, 1.0, true).tensor().to_vector<float>(), (std::vector<float>{0, 0, 0}));
  EXPECT_THROW((void)ops::dropout(x, 1.5, true), ArgumentError);
  EXPECT_THROW((void)ops::dropout(x, std::nan(""), true), ArgumentError);
}

TEST(Embedding, SumsTheGradientsOfRepeatedIds) {
  const Variable table(Tensor::from({1.0f, 2.0f, 3.0f}, {3, 1}), true);
  const Variable y = ops::embedding(Tensor::from({2, 0, 2}), table);
  EXPECT_EQ(y.shape(), (Shape{3, 1}));
  EXPECT_EQ(y.tensor().to_vector<float>(), (std::vector<float>{3, 1, 3}));
  y.backward(Tensor::from({1.0f, 10.0f, 100.0f}, {3, 1}));
  EXPECT_EQ(table.grad().to_vector<float>(), (std::vector<float>{10, 0, 101}));
}

TEST(Embedding, NamesTheIdOutOfRange) {
  const Variable table = Tensor::zeros({3, 2});
  EXPECT_THROW((void)ops::embedding(Tensor::from({0, 3}), table), ArgumentError);
  EXPECT_THROW((void)ops::embedding(Tensor::from({-1}), table), ArgumentError);
  EXPECT_NO_THROW((void)ops::embedding(Tensor::from({0.0f, 2.0f}), table));
  EXPECT_THROW((void)ops::embedding(Tensor::from({0.0f, 1.5f}), table), ArgumentError);
  EXPECT_THROW((void)ops::embedding(Tensor::zeros({2}, DType::u8), table), ArgumentError);
  EXPECT_THROW((void)ops::embedding(Tensor::from({1}), Tensor::zeros({3})), ArgumentError);
}

}  // namespace
}  // namespace fq::random_test
