#include "fakequant/core/ops/loss.h"

#include <cmath>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "core/gradient_check.h"
#include "fakequant/core/error.h"
#include "fakequant/core/ops/shape.h"

namespace fq::loss_test {
namespace {

Tensor labels(const std::vector<std::int64_t>& values) {
  return Tensor::from(values, {static_cast<std::int64_t>(values.size())});
}

TEST(CrossEntropy, KnownValues) {
  const Variable x = Tensor::from({0.0f, 0.0f, std::log(3.0f), 0.0f}, {2, 2});  // p = 1/2 1/2, 3/4 1/4
  EXPECT_NEAR(ops::cross_entropy(x, labels({0, 1})).item(), (std::log(2.0) + std::log(4.0)) / 2, 1e-6);
  const double smoothed = 0.8 * std::log(4.0) + 0.1 * (std::log(4.0) + std::log(4.0 / 3.0));
  EXPECT_NEAR(ops::cross_entropy(Tensor::from({std::log(3.0f), 0.0f}, {1, 2}), labels({1}), 0.2).item(),
              smoothed, 1e-6);
}

TEST(CrossEntropy, IgnoresMaskedRows) {
  const auto joined = [](const std::vector<Variable>& parts) { return ops::concat(parts, 0).tensor(); };
  const Tensor all = test::random_values({5, 4}, 1), rest = joined({all.slice(0, 1), all.slice(2, 4)});
  for (const double smoothing : {0.0, 0.3}) {
    const Variable x(all, true), y(rest, true);
    const Variable loss = ops::cross_entropy(x, labels({3, -7, 0, 1, -7}), smoothing, -7);
    const Variable expected = ops::cross_entropy(y, labels({3, 0, 1}), smoothing);
    EXPECT_EQ(loss.item(), expected.item());
    loss.backward();
    expected.backward();
    const Tensor none = Tensor::zeros({1, 4}, DType::f64), dy = y.grad();
    EXPECT_TRUE(bitwise_equal(x.grad(), joined({dy.slice(0, 1), none, dy.slice(1, 3), none})));
  }
  const Variable x(all, true);
  const Variable nothing = ops::cross_entropy(x, labels({2, 2, 2, 2, 2}), 0.1, 2);
  EXPECT_EQ(nothing.item(), 0.0);
  nothing.backward();
  EXPECT_TRUE(bitwise_equal(x.grad(), Tensor::zeros({5, 4}, DType::f64)));
  EXPECT_THROW((void)ops::cross_entropy(x, labels({2, 2, -7, 2, 2}), 0.0, -100), ArgumentError);
}

/// torch 2.15: F.cross_entropy(x, y, weight=[0.5, 2, 1, 0.25], label_smoothing=e, ignore_index=-7) of x[i, j]
/// = 2 sin(0.37 (4 i + j)), and its gradient times [1, 2, .., 20].
TEST(CrossEntropy, ClassWeightsMatchPyTorch) {
  std::vector<double> values(20), seeds(20);
  for (int i = 0; i < 20; ++i) {
    values[static_cast<std::size_t>(i)] = 2 * std::sin(0.37 * i);
    seeds[static_cast<std::size_t>(i)] = i + 1;
  }
  const Tensor weights = Tensor::from({0.5, 2.0, 1.0, 0.25});
  const auto found = [&](double smoothing) {
    const Variable x(Tensor::from(values, {5, 4}), true);
    const Variable loss = ops::cross_entropy(x, labels({3, -7, 0, 1, 2}), smoothing, -7, weights);
    loss.backward();
    const auto gradient = x.grad().to_vector<double>();
    return std::pair{loss.item(), std::inner_product(gradient.begin(), gradient.end(), seeds.begin(), 0.0)};
  };
  EXPECT_NEAR(found(0).first, 1.3550663795749, 1e-12);
  EXPECT_NEAR(found(0).second, 0.5191777171067, 1e-12);
  EXPECT_NEAR(found(0.2).first, 1.4127757356948, 1e-12);
  EXPECT_NEAR(found(0.2).second, 0.5077020675836, 1e-12);
  const Variable none = ops::cross_entropy(Tensor::from(values, {5, 4}), labels({0, 0, 0, 0, 0}), 0.1, {},
                                           Tensor::from({0.0, 1.0, 1.0, 1.0}));
  EXPECT_EQ(none.item(), 0.0);
}

TEST(CrossEntropy, LargeLogitsStayFinite) {
  const Variable x(Tensor::from({1e4f, -1e4f}, {1, 2}), true);
  const Variable loss = ops::cross_entropy(x, labels({1}));
  EXPECT_EQ(loss.item(), 2e4);
  loss.backward();
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{1, -1}));
}

TEST(CrossEntropy, AcceptsInt32Labels) {
  const Variable x = Tensor::zeros({1, 4});
  EXPECT_NEAR(ops::cross_entropy(x, Tensor::from({2})).item(), std::log(4.0), 1e-6);
}

TEST(CrossEntropy, ReadsUnroundedSums) {
  const Accumulator sums{ProductSums{Tensor::from({0, 0}, {1, 2}), {}, Tensor::scalar(1.0), 1}};
  EXPECT_NEAR(ops::cross_entropy(Variable(sums), labels({0})).item(), std::log(2.0), 1e-6);
}

TEST(CrossEntropy, NamesTheLabelOutOfRange) {
  const Variable x = Tensor::zeros({3, 4});
  try {
    (void)ops::cross_entropy(x, labels({0, 3, 4}));
    FAIL();
  } catch (const ArgumentError& error) {
    EXPECT_STREQ(error.what(), "[cross_entropy] label 2 of 3 is 4: use 0 to 3");
  }
  EXPECT_THROW((void)ops::cross_entropy(x, labels({0, -1, 2})), ArgumentError);
}

/// [N, C, T] and [N, T]: the mean over all positions, as of [N * T, C].
TEST(CrossEntropy, PositionsAreRows) {
  const Tensor logits = test::random_values({4, 6, 5}, 3);
  std::vector<std::int64_t> values;
  for (std::int64_t i = 0; i < 20; ++i) values.push_back(i * 5 % 6);
  Variable x(logits, true);
  const Variable loss = ops::cross_entropy(x, Tensor::from(values, {4, 5}), 0.1, 5);
  Variable rows(ops::transpose(Variable(logits), {0, 2, 1}).tensor().reshape({20, 6}), true);
  const Variable same = ops::cross_entropy(rows, labels(values), 0.1, 5);
  EXPECT_EQ(loss.item(), same.item());
  loss.backward();
  same.backward();
  const Tensor back = ops::transpose(Variable(x.grad()), {0, 2, 1}).tensor().reshape({20, 6});
  EXPECT_TRUE(bitwise_equal(back, rows.grad()));
}

/// The gradient of a row does not depend on the other rows.
TEST(CrossEntropy, RowsAreIndependent) {
  constexpr std::int64_t classes = 5003, rows = 20;
  const Tensor logits = test::random_values({rows, classes}, 4).to(DType::f32);
  std::vector<std::int64_t> values;
  for (std::int64_t i = 0; i < rows; ++i) values.push_back(i * 104729 % classes);
  Variable all(logits, true);
  const Variable loss = ops::cross_entropy(all, labels(values));
  loss.backward();
  double sum = 0;
  for (std::int64_t i = 0; i < rows; ++i) {
    Variable one(logits.slice(i, i + 1), true);
    const Variable own = ops::cross_entropy(one, labels({values[static_cast<std::size_t>(i)]}));
    sum += own.item();
    own.backward(Tensor::scalar(1.0 / rows));
    ASSERT_TRUE(bitwise_equal(one.grad(), all.grad().slice(i, i + 1))) << i;
  }
  EXPECT_NEAR(loss.item(), sum / rows, 1e-5 * sum / rows);  // each mean is rounded to f32
}

/// The formula of log p, of the loss in f64 and of the gradient, with the bits of the log_softmax operator.
TEST(CrossEntropy, HasTheBitsOfLogSoftmax) {
  constexpr std::int64_t classes = 301, rows = 67;
  for (const DType dtype : {DType::f32, DType::f64})
    for (const double smoothing : {0.0, 0.2}) {
      const Tensor logits = test::random_values({rows, classes}, 9, -8, 8).to(dtype);
      std::vector<std::int64_t> values;
      for (std::int64_t i = 0; i < rows; ++i) values.push_back(i * 37 % classes);
      Variable x(logits, true);
      const Variable loss = ops::cross_entropy(x, labels(values), smoothing);
      loss.backward();
      const Tensor log_p = ops::log_softmax(Variable(logits), 1).tensor();
      const auto check = [&]<class T>(T) {
        const T *p = log_p.data<T>(), *g = x.grad().data<T>();
        double total = 0;
        for (std::int64_t n = 0; n < rows; ++n, p += classes, g += classes) {
          const std::int64_t own = values[static_cast<std::size_t>(n)];
          total -= (1.0 - smoothing) * static_cast<double>(p[own]);
          double all = 0;
          for (std::int64_t c = 0; smoothing > 0 && c < classes; ++c) all += static_cast<double>(p[c]);
          total -= smoothing / classes * all;
          for (std::int64_t c = 0; c < classes; ++c) {
            const T target =
                static_cast<T>(smoothing / classes) + (c == own ? static_cast<T>(1.0 - smoothing) : T{0});
            ASSERT_EQ(g[c], static_cast<T>(1.0 / rows) * (std::exp(p[c]) - target)) << n << ' ' << c;
          }
        }
        EXPECT_EQ(loss.tensor().data<T>()[0], static_cast<T>(total / rows));
      };
      dtype == DType::f32 ? check(float{}) : check(double{});
    }
}

TEST(CrossEntropy, RejectsMismatchedShapes) {
  const Variable x = Tensor::zeros({2, 4});
  EXPECT_THROW((void)ops::cross_entropy(x, labels({0})), ArgumentError);
  EXPECT_THROW((void)ops::cross_entropy(x, Tensor::zeros({2})), ArgumentError);
  EXPECT_THROW((void)ops::cross_entropy(x, {}), ArgumentError);
  EXPECT_THROW((void)ops::cross_entropy(x, labels({0, 1}), 1.5), ArgumentError);
  EXPECT_THROW((void)ops::cross_entropy(x, labels({0, 1}), 0.0, {}, Tensor::zeros({3})), ArgumentError);
  EXPECT_THROW((void)ops::cross_entropy(Tensor::zeros({2}), labels({0, 1})), ArgumentError);
  EXPECT_THROW((void)ops::cross_entropy(Tensor::zeros({2, 0}), labels({0, 1})), ArgumentError);
  EXPECT_THROW((void)ops::cross_entropy(Tensor::zeros({2, 1}), labels({0, 0})), ArgumentError);
}

TEST(Softmax, RowsSumToOneAndLogarithmsAgree) {
  const Variable x = test::random_values({4, 7}, 1, -30, 30);
  const auto p = ops::softmax(x).tensor().to_vector<double>(),
             l = ops::log_softmax(x).tensor().to_vector<double>();
  for (std::size_t r = 0; r < 4; ++r) {
    double sum = 0;
    for (std::size_t c = 0; c < 7; ++c) sum += p[7 * r + c];
    EXPECT_NEAR(sum, 1.0, 1e-14);
  }
  for (std::size_t i = 0; i < p.size(); ++i) EXPECT_NEAR(std::log(p[i]), l[i], 1e-12);
}

TEST(Softmax, RejectsAnAxisOutOfRange) {
  EXPECT_THROW((void)ops::softmax(Tensor::zeros({2, 2}), 2), ArgumentError);
  EXPECT_THROW((void)ops::softmax(Tensor::scalar(1.0)), ArgumentError);
}

TEST(MseLoss, KnownValueAndShapes) {
  const Variable x = Tensor::from({1.0f, 3.0f});
  EXPECT_EQ(ops::mse_loss(x, Tensor::from({0.0f, 1.0f})).item(), 2.5);
  EXPECT_THROW((void)ops::mse_loss(x, Tensor::zeros({2, 1})), ArgumentError);
}

}  // namespace
}  // namespace fq::loss_test
