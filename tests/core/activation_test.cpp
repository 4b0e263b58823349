#include "fakequant/core/ops/activation.h"

#include <cmath>
#include <functional>
#include <limits>

#include <gtest/gtest.h>

#include "fakequant/core/error.h"

namespace fq::activation_test {
namespace {

constexpr float nan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> values(const Variable& x) { return x.tensor().to_vector<float>(); }
Variable row(std::initializer_list<float> x) { return Tensor::from(x); }

TEST(Activation, KnownValues) {
  const Variable x = row({-1.0f, 0.0f, 1.0f, 7.0f});
  EXPECT_EQ(values(ops::relu(x)), (std::vector<float>{0, 0, 1, 7}));
  EXPECT_EQ(values(ops::relu6(x)), (std::vector<float>{0, 0, 1, 6}));
  EXPECT_EQ(values(ops::clip(x, -0.5, 2)), (std::vector<float>{-0.5f, 0, 1, 2}));
  EXPECT_EQ(values(ops::leaky_relu(x, 0.25)), (std::vector<float>{-0.25f, 0, 1, 7}));
  EXPECT_NEAR(values(ops::gelu(x))[2], 0.8413447f, 1e-6);        // Phi(1)
  EXPECT_NEAR(values(ops::gelu(x, true))[2], 0.8411920f, 1e-6);  // arXiv:1606.08415, the approximation at 1
  const Variable wide = row({-4, -3, -1.5f, 0, 3, 5});
  EXPECT_EQ(values(ops::hard_sigmoid(wide)), (std::vector<float>{0, 0, 0.25f, 0.5f, 1, 1}));
  EXPECT_EQ(values(ops::hard_swish(wide)), (std::vector<float>{0, 0, -0.375f, 0, 3, 5}));
  EXPECT_NEAR(values(ops::silu(x))[2], 0.7310586f, 1e-6);
  EXPECT_NEAR(values(ops::sigmoid(x))[0], 0.2689414f, 1e-6);
  EXPECT_NEAR(values(ops::tanh(x))[2], 0.7615942f, 1e-6);
}

TEST(Activation, LargeInputsSaturateWithoutNaN) {
  const Variable x = row({-1e4f, 1e4f});
  EXPECT_EQ(values(ops::sigmoid(x)), (std::vector<float>{0, 1}));
  EXPECT_EQ(values(ops::tanh(x)), (std::vector<float>{-1, 1}));
  EXPECT_EQ(values(ops::silu(x)), (std::vector<float>{0, 1e4f}));
  EXPECT_EQ(values(ops::gelu(x)), (std::vector<float>{0, 1e4f}));
}

/// Slopes at points where two pieces meet equal those of torch 2.15.
TEST(Activation, SlopesAtKinksMatchTorch) {
  struct Kinks {
    std::function<Variable(const Variable&)> function;
    std::vector<double> at, slopes;
  };
  const std::vector<Kinks> all{
      {[](const Variable& x) { return ops::relu(x); }, {0}, {0}},
      {[](const Variable& x) { return ops::relu6(x); }, {0, 6}, {0, 0}},
      {[](const Variable& x) { return ops::clip(x, -1, 0.5); }, {-1, 0.5}, {0, 0}},
      {[](const Variable& x) { return ops::clip(x, 0, 6); }, {0, 3, 6}, {0, 1, 0}},
      {[](const Variable& x) { return ops::leaky_relu(x, 0.25); }, {0}, {0.25}},
      {[](const Variable& x) { return ops::hard_sigmoid(x); }, {-3, 3}, {0, 0}},
      {[](const Variable& x) { return ops::hard_swish(x); }, {-3, 3}, {0, 1}},
  };
  for (const DType dtype : {DType::f32, DType::f64})
    for (const auto& [function, at, slopes] : all) {
      const auto count = static_cast<std::int64_t>(at.size());
      const Variable x(Tensor::from(at, {count}).to(dtype), true);
      function(x).backward(Tensor::full({count}, 1.0, dtype));
      EXPECT_EQ(x.grad().to(DType::f64).to_vector<double>(), slopes);
    }
}

TEST(Activation, NaNReachesTheNextQuantizer) {
  for (const auto& y : {ops::relu(row({nan})), ops::relu6(row({nan})), ops::clip(row({nan}), 0, 1),
                        ops::leaky_relu(row({nan})), ops::gelu(row({nan})), ops::sigmoid(row({nan}))})
    EXPECT_TRUE(std::isnan(values(y)[0]));
}

TEST(Activation, ReluOfSumsSetsTheFlagAndDefersTheMask) {
  const ProductSums sums{Tensor::from({-3, 2, 5}, {1, 3}), {}, Tensor::scalar(0.5), 1};
  const Variable leaf = Variable(Tensor::zeros({1, 3}), true);
  const Variable x = ops::relu(Variable(Accumulator{sums}));
  ASSERT_NE(x.accumulator(), nullptr);
  EXPECT_TRUE(x.accumulator()->relu);
  EXPECT_EQ(values(x), (std::vector<float>{0, 1, 2.5f}));
}

TEST(Activation, ReluKeepsUnsignedCodes) {
  const auto grid = Grid::from_amax(IntFormat{8, true}, {}, Tensor::scalar(2.55));
  const Variable x = ops::relu(Variable(quantize(Tensor::from({0.0f, 1.0f, 3.0f}), grid)));
  ASSERT_NE(x.quantized(), nullptr);
  EXPECT_EQ(x.quantized()->codes.to_vector<std::uint8_t>(), (std::vector<std::uint8_t>{0, 100, 255}));
}

TEST(Activation, ReluConvertsSignedCodesToFloats) {
  const auto grid = Grid::from_amax(IntFormat{}, {}, Tensor::scalar(1.27));
  const Variable x = ops::relu(Variable(quantize(Tensor::from({-0.5f, 0.5f}), grid)));
  EXPECT_EQ(x.quantized(), nullptr);
  EXPECT_EQ(values(x)[0], 0.0f);
  EXPECT_NEAR(values(x)[1], 0.5f, 1e-6);
}

TEST(Activation, RejectsInvalidArguments) {
  EXPECT_THROW((void)ops::clip(row({1.0f}), 1, 0), ArgumentError);
  EXPECT_THROW((void)ops::clip(row({1.0f}), std::nan(""), 0), ArgumentError);
  EXPECT_THROW((void)ops::leaky_relu(row({1.0f}), -0.1), ArgumentError);
  EXPECT_THROW((void)ops::relu(Variable()), ArgumentError);
  EXPECT_THROW((void)ops::gelu(Variable(Tensor::from({1, 2}))), ArgumentError);
}

}  // namespace
}  // namespace fq::activation_test
