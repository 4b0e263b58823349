#include "core/gradient_check.h"

#include <gtest/gtest.h>

#include "fakequant/core/ops/elementwise.h"
#include "fakequant/core/tape.h"

namespace fq::test::gradient_check_test {
namespace {

/// 2x with the gradient that `backward` gives.
Function make_doubling(Backward backward) {
  return [backward](const std::vector<Variable>& v) {
    return detail::record("double", ops::scale(v[0].detach(), 2.0).tensor(), {v[0]}, backward);
  };
}

TEST(GradientCheck, AcceptsACorrectGradient) {
  const auto f =
      make_doubling([](const Tensor& dy) { return std::vector<Tensor>{ops::scale(dy, 2.0).tensor()}; });
  EXPECT_EQ(check_gradients(f, {random_values({3, 2}, 1)}, {true}), "");
}

TEST(GradientCheck, CatchesAGradientOffByAHundredThousandth) {
  const auto f =
      make_doubling([](const Tensor& dy) { return std::vector<Tensor>{ops::scale(dy, 2.00002).tensor()}; });
  EXPECT_NE(check_gradients(f, {random_values({3, 2}, 1)}, {true}), "");
}

TEST(GradientCheck, CatchesAnUnwrittenGradient) {
  const auto f = make_doubling(
      [](const Tensor& dy) { return std::vector<Tensor>{Tensor::empty(dy.shape(), dy.dtype())}; });
  EXPECT_NE(check_gradients(f, {random_values({3, 2}, 1)}, {true}).find("nan"), std::string::npos);
}

TEST(GradientCheck, ComparesStraightThroughOperatorsWithTheirSurrogate) {
  const auto f =
      make_doubling([](const Tensor& dy) { return std::vector<Tensor>{ops::scale(dy, 3.0).tensor()}; });
  GradientCheck options;
  options.surrogate = [](const std::vector<Variable>& v) { return ops::scale(v[0], 3.0); };
  EXPECT_EQ(check_gradients(f, {random_values({3, 2}, 1)}, {true}, options), "");
}

TEST(GradientCheck, AvoidsKinks) {
  const auto values = moved_off(Tensor::from({0.01, -0.01, 0.5, 5.98}), {0.0, 6.0}).to_vector<double>();
  EXPECT_EQ(values, (std::vector<double>{0.05, -0.05, 0.5, 5.95}));
}

}  // namespace
}  // namespace fq::test::gradient_check_test
