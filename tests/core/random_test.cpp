#include "fakequant/core/random.h"

#include <cmath>

#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/core/ops/activation.h"
#include "fakequant/core/ops/linear.h"

namespace fq::random_test {
namespace {

using Words = std::array<std::uint32_t, 4>;

TEST(Philox, KnownAnswers) {  // Random123 1.09, tests/kat_vectors, philox4x32 10
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const std::uint32_t all = 0xffffffff;
  EXPECT_EQ(philox({all, all, all, all}, {all, all}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Fill, NormalValuesHaveTheirMoments) {
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

TEST(Fill, DependsOnSeedAndStreamNotOnLayoutOrSize) {
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

TEST(Dropout, KeepsTheGivenShareScaled) {
  const auto y = dropped(Tensor::full({40000}, 3.0), 0);
  int kept = 0;
  for (const float v : y) {
    ASSERT_TRUE(v == 0.0f || v == 4.0f);
    kept += v != 0.0f;
  }
  EXPECT_NEAR(kept, 30000, 5 * std::sqrt(40000 * 0.25 * 0.75));
}

TEST(Dropout, IsAFunctionOfStepOperatorAndLogicalElement) {
  const Tensor x = Tensor::full({2, 3, 4, 5}, 1.0);
  EXPECT_EQ(dropped(x, 1), dropped(x, 1));
  EXPECT_EQ(dropped(x, 1), dropped(x.to(Layout::channels_last), 1));
  EXPECT_NE(dropped(x, 1), dropped(x, 2));
  const RandomScope scope(5, 1);
  const auto first = ops::dropout(x, 0.25, true).tensor().to_vector<float>();
  EXPECT_EQ(first, dropped(x, 1));  // a nested scope leaves this one where it was
  EXPECT_NE(first, ops::dropout(x, 0.25, true).tensor().to_vector<float>());
}

TEST(Dropout, IsNothingInEvaluation) {
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
