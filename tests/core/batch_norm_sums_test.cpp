// Batch normalization of unrounded integer sums equals batch normalization of their float values.

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "core/products.h"
#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/error.h"
#include "fakequant/core/numerics/detail/formulas.h"
#include "fakequant/core/ops/norm.h"
#include "fakequant/core/ops/quantize.h"
#include "fakequant/core/tape.h"

namespace fq::batch_norm_sums_test {
namespace {

constexpr std::int64_t kChannels = 20;

ProductSums make_sums(const Shape& shape, Layout layout) {
  std::vector<std::int32_t> sums(static_cast<std::size_t>(numel(shape)));
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = static_cast<std::int32_t>(i * 7919 % 60013) - 20000;
  std::vector<std::int32_t> bias(kChannels);
  std::vector<float> scale(kChannels);
  for (std::size_t c = 0; c < bias.size(); ++c) {
    bias[c] = static_cast<std::int32_t>(c) * 100 - 1000;
    scale[c] = 1e-4f * static_cast<float>(c + 1);
  }
  return {Tensor::from(sums, shape).to(layout), Tensor::from(bias, {kChannels}),
          Tensor::from(scale, {kChannels}), 1};
}

/// A leaf that gradients reach, read as `value`.
Variable make_reader(const Variable& leaf, Value value) {
  return detail::record("test", std::move(value), {leaf},
                        [](const Tensor& dy) { return std::vector<Tensor>{dy}; });
}

struct Result {
  Tensor y, dx, dgamma, dbeta, mean, variance;
};

Result run(const ProductSums& sums, bool as_floats, bool training, const Tensor& dy) {
  const Accumulator accumulator{sums};
  const Variable leaf(Tensor::zeros(sums.sums.shape()), true);
  const Variable x = as_floats ? make_reader(leaf, to_float(accumulator)) : make_reader(leaf, accumulator);
  const Variable gamma(test::uniform({kChannels}, 1), true), beta(test::uniform({kChannels}, 2), true);
  Tensor mean = test::uniform({kChannels}, 3), variance = Tensor::full({kChannels}, 0.5);
  const Variable y = ops::batch_norm(x, gamma, beta, mean, variance, training, 0.1, 1e-5);
  EXPECT_EQ(y.accumulator() != nullptr, !as_floats);
  Result out{y.tensor(), {}, {}, {}, mean, variance};
  y.backward(dy);
  out.dx = leaf.grad();
  out.dgamma = gamma.grad();
  out.dbeta = beta.grad();
  return out;
}

TEST(BatchNormOfSums, MatchesBatchNormOfTheFloatValues) {
  // both round to f32 in another order: |x| < 160, sums of 210 rows
  constexpr double values = 2e-5, gradients = 2e-3;
  for (const auto& [shape, layout] :
       {std::pair{Shape{3, kChannels, 7, 10}, Layout::channels_last}, {{210, kChannels}, Layout::row_major}})
    for (const bool training : {true, false}) {
      const ProductSums sums = make_sums(shape, layout);
      const Tensor dy = test::uniform(shape, 4);
      const Result a = run(sums, false, training, dy), b = run(sums, true, training, dy);
      EXPECT_LT(test::difference(a.y, b.y), values);
      EXPECT_LT(test::difference(a.dx, b.dx), values);
      EXPECT_LT(test::difference(a.dgamma, b.dgamma), gradients);
      EXPECT_LT(test::difference(a.dbeta, b.dbeta), gradients);
      EXPECT_LT(test::difference(a.mean, b.mean), values);
      EXPECT_LT(test::difference(a.variance, b.variance), gradients);
    }
}

TEST(BatchNormOfSums, MomentsAreExact) {
  constexpr std::int32_t low = std::numeric_limits<std::int32_t>::min(),
                         high = std::numeric_limits<std::int32_t>::max();
  // Neighbours of a large mean, the same number, and the extremes: mean, variance.
  constexpr std::int32_t pairs[3][2] = {{high, high - 2}, {low, low}, {low, high}};
  constexpr double moments[3][2] = {{0x1p31 - 2, 1}, {-0x1p31, 0}, {-0.5, 0x1p62 - 0x1p31}};
  for (const std::int64_t rows : {2, 14, 200'000}) {
    std::vector<std::int32_t> values;
    for (std::int64_t i = 0; i < rows; ++i)
      for (const auto& pair : pairs) values.push_back(pair[i % 2]);
    Tensor out = Tensor::empty({2, 3}, DType::f64);
    detail::run(Device::cpu(), &detail::Kernels::moments, Tensor::from(values, {rows, 3}), out);
    for (int c = 0; c < 3; ++c) {
      EXPECT_EQ(out.data<double>()[c], moments[c][0]) << rows << ' ' << c;
      EXPECT_EQ(out.data<double>()[3 + c], moments[c][1]) << rows << ' ' << c;
    }
  }
}

TEST(BatchNormOfSums, RoundsWithOneMultiplyAddAndRelu) {
  const ProductSums sums = make_sums({3, kChannels, 7, 10}, Layout::channels_last);
  const Tensor gamma = test::uniform({kChannels}, 1), beta = test::uniform({kChannels}, 2);
  Variable y = ops::batch_norm(Variable(Accumulator{sums}), gamma, beta, {}, {}, true, 0.1, 1e-5);
  Accumulator with_relu = *y.accumulator();
  with_relu.relu = true;
  const Grid grid = Grid::from_amax(IntFormat{8, true}, {}, Tensor::scalar(1.3), "y");
  const QuantizedTensor q = requantize(with_relu, grid);
  const auto codes = q.codes.to_vector<std::uint8_t>();
  const auto& n = std::get<NormalizedSums>(with_relu.value);
  const auto values = n.sums.to_vector<std::int32_t>();
  const float s = grid.scale.data<float>()[0];
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t c = i / 70 % kChannels;
    const float factor = n.factor.data<float>()[c], shift = n.shift.data<float>()[c];
    ASSERT_EQ(codes[i], static_cast<std::uint8_t>(scalar::normalized_code(
                            static_cast<float>(values[i]), factor / s, shift / s, 0.0f, 255.0f)));
  }
}

TEST(BatchNormOfSums, ReadsSumsUnderAReluAsFloats) {
  const Variable x(Accumulator{make_sums({2, kChannels, 3, 3}, Layout::channels_last), true});
  EXPECT_EQ(ops::batch_norm(x, {}, {}, {}, {}, true).accumulator(), nullptr);
}

TEST(BatchNormOfSums, KeepsNaNThroughRounding) {
  const Tensor sums = Tensor::from(std::vector<std::int32_t>{-3, 5, 7, -2}, {2, 2});
  const Tensor factor = Tensor::from({1.0f, NAN}), shift = Tensor::from({0.0f, 0.0f});
  const Accumulator x{NormalizedSums{sums, factor, shift}, true};
  const Accumulator view{AccumulatorMove{{Accumulator{x.value, false}}, ReshapeMove{{4}}}, true};
  for (const Accumulator& read : {x, view}) {
    Tensor mask;
    const auto values = to_float(read, &mask).to_vector<float>();
    EXPECT_EQ(values[0], 0.0f);
    EXPECT_TRUE(std::isnan(values[1]));
    EXPECT_EQ(values[2], 7.0f);
    EXPECT_TRUE(std::isnan(values[3]));
    EXPECT_EQ(static_cast<const std::uint8_t*>(mask.raw())[0], 0b0100);
    const auto grid = Grid::from_amax(IntFormat{8}, Granularity::per_tensor(), Tensor::scalar(4), "q");
    EXPECT_THROW((void)requantize(read, grid), NumericError);
  }
}

}  // namespace
}  // namespace fq::batch_norm_sums_test
