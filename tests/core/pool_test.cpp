#include "fakequant/core/ops/pool.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "core/gradient_check.h"
#include "fakequant/core/error.h"
#include "fakequant/core/ops/activation.h"
#include "fakequant/core/ops/elementwise.h"
#include "fakequant/core/ops/quantize.h"
#include "fakequant/core/ops/shape.h"
#include "fakequant/core/tape.h"

namespace fq::pool_test {
namespace {

const ops::Pool2d two{{2, 2}};
const ops::Pool2d three{{3, 3}, {2, 2}, {1, 1}};

Grid int8(double amax, bool is_unsigned = false) {
  return Grid::from_amax(IntFormat{8, is_unsigned}, {}, Tensor::scalar(amax));
}
std::vector<float> values(const Variable& x) { return x.tensor().to_vector<float>(); }
Tensor floats(const Shape& shape, unsigned seed) { return test::random_values(shape, seed).to(DType::f32); }

Tensor integers(const Shape& shape, unsigned seed, double bound) {
  return test::random_values(shape, seed, -bound, bound).to(DType::i32);
}

/// Sums as if a product of `leaf` had made them, its gradient passed straight.
Variable make_sums(const Variable& leaf, const Tensor& sums) {
  return detail::record("sums", Accumulator{ProductSums{sums, {}, Tensor::scalar(1.0), 1}}, {leaf},
                        [](const Tensor& dy) { return std::vector<Tensor>{dy}; });
}

TEST(MaxPool, FirstOfEqualValuesReceivesTheGradient) {
  const Variable x(Tensor::from({1.0f, 2.0f, 2.0f, 2.0f}, {1, 1, 2, 2}), true);
  ops::max_pool2d(x, two).backward(Tensor::full({1, 1, 1, 1}, 5.0));
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{0, 5, 0, 0}));
}

TEST(MaxPool, IgnoresPaddingAndPropagatesNaN) {
  const Variable x = Tensor::full({1, 1, 3, 3}, -7.0);
  EXPECT_EQ(values(ops::max_pool2d(x, three)), (std::vector<float>(4, -7.0f)));
  Tensor y = Tensor::zeros({1, 1, 2, 2});
  y.mutable_data<float>()[1] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(values(ops::max_pool2d(y, two))[0]));
}

/// Windows of channels stored one after another, as in volumes.
template <class Window>
std::vector<float> pool_windows(const Tensor& x, const ops::Pool3d& o, const Shape& out,
                                const Window& window) {
  const auto v = x.to_vector<float>();
  const Shape s = x.shape();
  std::vector<float> y;
  for (std::int64_t c = 0; c < s[0] * s[1]; ++c)
    for (std::int64_t a = 0; a < out[2]; ++a)
      for (std::int64_t b = 0; b < out[3]; ++b)
        for (std::int64_t e = 0; e < out[4]; ++e) {
          std::vector<float> inside;
          for (std::int64_t i = 0; i < o.kernel[0]; ++i)
            for (std::int64_t j = 0; j < o.kernel[1]; ++j)
              for (std::int64_t k = 0; k < o.kernel[2]; ++k) {
                const std::int64_t d = a * o.stride[0] - o.padding[0] + i * o.dilation[0],
                                   h = b * o.stride[1] - o.padding[1] + j * o.dilation[1],
                                   w = e * o.stride[2] - o.padding[2] + k * o.dilation[2];
                if (d >= 0 && h >= 0 && w >= 0 && d < s[2] && h < s[3] && w < s[4])
                  inside.push_back(v[static_cast<std::size_t>(((c * s[2] + d) * s[3] + h) * s[4] + w)]);
              }
          y.push_back(window(inside));
        }
  return y;
}

TEST(Pool3d, MatchesPlainLoopsBitwise) {
  const Tensor x = floats({2, 3, 5, 6, 7}, 5);
  const ops::Pool3d dilated{
      .kernel = {2, 2, 3}, .stride = {1, 2, 1}, .padding = {1, 0, 1}, .dilation = {2, 1, 2}},
      inside{.kernel = {3, 2, 3}, .stride = {2, 2, 1}, .padding = {1, 1, 0}, .count_include_pad = false};
  const Variable largest = ops::max_pool3d(x, dilated), means = ops::avg_pool3d(x, inside);
  EXPECT_EQ(values(largest), pool_windows(x, dilated, largest.shape(),
                                          [](const auto& v) { return *std::ranges::max_element(v); }));
  const auto mean = [](const std::vector<float>& v) {
    float sum = 0;
    for (const float each : v) sum += each;
    return sum / static_cast<float>(v.size());
  };
  EXPECT_EQ(values(means), pool_windows(x, inside, means.shape(), mean));
  EXPECT_EQ(values(ops::avg_pool3d(x, {.kernel = {1, 2, 3}})),
            pool_windows(x, {.kernel = {1, 2, 3}, .stride = {1, 2, 3}}, {2, 3, 5, 3, 2}, mean));
}

TEST(Pool3d, KeepsCodesAndSums) {
  const Tensor x = floats({2, 3, 4, 6, 5}, 5);
  const ops::Pool3d padded{.kernel = {2, 3, 2}, .stride = {1, 2, 2}, .padding = {1, 1, 0}};
  const Variable codes(quantize(x, int8(1.7)));
  const Variable y = ops::max_pool3d(codes, padded);
  ASSERT_NE(y.quantized(), nullptr);
  EXPECT_EQ(values(y), values(ops::max_pool3d(codes.tensor(), padded)));
  const Variable means = ops::avg_pool3d(codes, {});
  ASSERT_NE(means.accumulator(), nullptr);
  EXPECT_EQ(values(means), values(ops::avg_pool3d(codes.tensor(), {})));
  EXPECT_NE(ops::global_avg_pool3d(codes).accumulator(), nullptr);
  const Variable leaf(Tensor::zeros(x.shape()), true);
  const Variable sums = make_sums(leaf, integers(x.shape(), 3, 90)), largest = ops::max_pool3d(sums, padded);
  ASSERT_NE(largest.accumulator(), nullptr);
  EXPECT_TRUE(std::holds_alternative<ProductSums>(largest.accumulator()->value));
  EXPECT_EQ(values(largest), values(ops::max_pool3d(sums.tensor(), padded)));
}

TEST(Pool3d, RejectsMismatchedShapes) {
  const Tensor x = floats({1, 2, 3, 3, 3}, 1);
  const auto expect_error = [&](const ops::Pool3d& options) {
    EXPECT_THROW((void)ops::max_pool3d(x, options), ArgumentError);
  };
  expect_error({.kernel = {4, 1, 1}});
  expect_error({.kernel = {0, 1, 1}});
  expect_error({.kernel = {2, 2, 2}, .padding = {2, 0, 0}});
  expect_error({.kernel = {2, 2, 2}, .dilation = {0, 1, 1}});
  expect_error(
      {.kernel = {2, 1, 1}, .padding = {3, 0, 0}, .dilation = {4, 1, 1}});  // a window between its elements
  EXPECT_THROW((void)ops::avg_pool3d(x, {.dilation = {2, 1, 1}}), ArgumentError);
  EXPECT_THROW((void)ops::max_pool3d(floats({1, 2, 3, 3}, 1), {}), ArgumentError);
}

TEST(MaxPool, PooledCodesMatchPooledFloats) {
  const Tensor x = floats({2, 3, 7, 6}, 5);
  for (const auto& grid :
       {int8(1.7), int8(1.7, true), Grid::from_amax(FloatFormat{}, {}, Tensor::scalar(1.7))}) {
    const Variable y = ops::max_pool2d(Variable(quantize(x, grid)), three);
    ASSERT_NE(y.quantized(), nullptr);
    EXPECT_EQ(y.layout(), Layout::channels_last);
    EXPECT_FALSE(y.quantized()->mask.defined());
    const auto expected = quantize(ops::max_pool2d(Variable(x), three).tensor(), grid);
    EXPECT_EQ(values(y), dequantize(expected).to_vector<float>());
  }
}

TEST(MaxPool, CodeGradientsPassThroughTheQuantizerMask) {
  const Variable x(Tensor::from({0.5f, 9.0f, 0.25f, -1.0f}, {1, 1, 1, 4}), true);
  const Variable y = ops::max_pool2d(ops::quantize(x, int8(1.0)), {{1, 2}});
  y.backward(Tensor::from({1.0f, 2.0f}, {1, 1, 1, 2}));
  EXPECT_EQ(x.grad().to_vector<float>(),
            (std::vector<float>{0, 0, 2, 0}));  // 9 saturates: its gradient is clipped
}

TEST(MaxPool, PooledSumsMatchPoolingAfterRounding) {
  const ProductSums sums{integers({2, 3, 6, 6}, 7, 40000).to(Layout::channels_last),
                         Tensor::from({100, -5000, 7}), Tensor::from({1e-4f, 3e-5f, 2e-4f}), 1};
  const Accumulator x{sums, true};
  const Variable y = ops::max_pool2d(Variable(x), two);
  ASSERT_NE(y.accumulator(), nullptr);
  EXPECT_TRUE(y.accumulator()->relu);
  const auto grid = int8(2.0, true);
  const Variable after = ops::max_pool2d(Variable(requantize(x, grid, false)), two);
  EXPECT_TRUE(bitwise_equal(requantize(*y.accumulator(), grid).codes, after.quantized()->codes));
}

TEST(MaxPool, NormalizedSumsPoolTheMinimumForANegativeFactor) {
  const NormalizedSums sums{integers({2, 4, 6, 6}, 7, 40000).to(Layout::channels_last),
                            Tensor::from({1e-4f, -3e-5f, 0.0f, -2e-4f}),
                            Tensor::from({0.1f, -0.2f, 0.7f, 0.3f}), 1};
  for (const bool relu : {false, true}) {
    const Accumulator x{sums, relu};
    const Variable leaf(Tensor::zeros({2, 4, 6, 6}), true);
    const Variable before =
        detail::record("sums", x, {leaf}, [](const Tensor& dy) { return std::vector<Tensor>{dy}; });
    const Variable y = ops::max_pool2d(before, two);
    ASSERT_NE(y.accumulator(), nullptr);
    const Variable floats_of_x(to_float(x), true);
    const Variable expected = ops::max_pool2d(floats_of_x, two);
    EXPECT_EQ(values(y), values(expected));
    const auto grid = int8(2.0, relu);
    const Variable after = ops::max_pool2d(Variable(requantize(x, grid, false)), two);
    EXPECT_TRUE(bitwise_equal(requantize(*y.accumulator(), grid).codes, after.quantized()->codes));
  }
}

TEST(MaxPool, PoolsEachPartOfAConcat) {
  const auto part = [](unsigned seed, double scale) {
    return Variable(
        Accumulator{ProductSums{integers({1, 2, 4, 4}, seed, 1000), {}, Tensor::scalar(scale), 1}});
  };
  const Variable x = ops::concat({part(1, 1e-3), part(2, 2e-3)}, 1);
  const Variable y = ops::max_pool2d(x, two);
  ASSERT_NE(y.accumulator(), nullptr);
  EXPECT_EQ(values(y), values(ops::max_pool2d(Variable(to_float(*x.accumulator())), two)));
}

TEST(MaxPool, SumGradientsGoToTheMaximum) {
  const Variable weight(Tensor::zeros({1, 2, 2, 2}), true);
  const Tensor sums = Tensor::from({1, 5, 3, 2, 9, 0, 9, 9}, {1, 2, 2, 2});
  const Variable x = make_sums(weight, sums);
  ops::max_pool2d(x, two).backward(Tensor::full({1, 2, 1, 1}, 1.0));
  EXPECT_EQ(weight.grad().to_vector<float>(), (std::vector<float>{0, 1, 0, 0, 1, 0, 0, 0}));
}

TEST(AvgPool, AveragesCodesLikeTheEngine) {
  const auto q = quantize(floats({1, 2, 4, 4}, 9), int8(1.9));
  const Variable y = ops::avg_pool2d(Variable(q), two);
  ASSERT_NE(y.accumulator(), nullptr);
  const auto x = dequantize(q).to_vector<float>();
  const auto got = values(y);
  for (std::size_t c = 0; c < 2; ++c) {
    float t = 0.0f;
    for (const std::size_t i : {0u, 1u, 4u, 5u}) t += x[16 * c + i];  // (h, w) order
    EXPECT_EQ(got[4 * c], t / 4.0f);
  }
}

TEST(AvgPool, DividesByWindowSizeOrPixelCount) {
  const Variable x = Tensor::full({1, 1, 2, 2}, 9.0);
  ops::Pool2d options{{3, 3}, {1, 1}, {1, 1}};
  EXPECT_EQ(values(ops::avg_pool2d(x, options)), (std::vector<float>(4, 4.0f)));
  options.count_include_pad = false;
  EXPECT_EQ(values(ops::avg_pool2d(x, options)), (std::vector<float>(4, 9.0f)));
}

TEST(GlobalPool, ReturnsIntegerSumsForCodes) {
  const auto q = quantize(floats({2, 3, 5, 4}, 11), int8(1.5));
  const Variable y = ops::global_avg_pool2d(Variable(q));
  ASSERT_NE(y.accumulator(), nullptr);
  const auto& sums = std::get<PooledSums>(y.accumulator()->value);
  EXPECT_EQ(sums.count, 20);
  const auto codes = q.codes.to_vector<std::int8_t>();
  std::int32_t first = 0;
  for (std::size_t i = 0; i < 20; ++i) first += codes[i];
  EXPECT_EQ(sums.sums.to_vector<std::int32_t>()[0], first);
  EXPECT_EQ(values(y)[0], static_cast<float>(first) * (q.grid.scale.data<float>()[0] / 20.0f));
}

TEST(GlobalPool, FlattenKeepsTheRoundedCodes) {
  const Variable x = ops::global_avg_pool2d(Variable(quantize(floats({4, 8, 3, 3}, 13), int8(1.5))));
  const Variable flat = ops::flatten(x);
  ASSERT_NE(flat.accumulator(), nullptr);
  EXPECT_EQ(requantize(*flat.accumulator(), int8(0.4)).codes.to_vector<std::int8_t>(),
            requantize(*x.accumulator(), int8(0.4)).codes.to_vector<std::int8_t>());
}

TEST(Pool, ReadsCodesWithSeveralScalesAsFloats) {
  const auto grid = Grid::from_amax(IntFormat{}, Granularity::per_axis(1), Tensor::from({1.0f, 2.0f}));
  const Variable x(quantize(floats({1, 2, 4, 4}, 3), grid));
  for (const auto& y : {ops::max_pool2d(x, two), ops::avg_pool2d(x, two), ops::global_avg_pool2d(x)})
    EXPECT_TRUE(std::holds_alternative<Tensor>(y.value()));
}

TEST(Pool, RejectsMismatchedShapes) {
  const Variable x = Tensor::zeros({1, 1, 4, 4});
  EXPECT_THROW((void)ops::max_pool2d(x, {{5, 2}}), ArgumentError);
  EXPECT_THROW((void)ops::max_pool2d(x, {{0, 2}}), ArgumentError);
  EXPECT_THROW((void)ops::avg_pool2d(x, {{2, 2}, {-1, 1}}), ArgumentError);
  EXPECT_THROW((void)ops::avg_pool2d(x, {{2, 2}, {0, 0}, {2, 2}}), ArgumentError);
  EXPECT_THROW((void)ops::max_pool2d(Tensor::zeros({1, 4, 4}), two), ArgumentError);
  EXPECT_THROW((void)ops::global_avg_pool2d(Tensor::zeros({1, 2, 0, 3})), ArgumentError);
  EXPECT_THROW((void)ops::max_pool1d(x, {}), ArgumentError);
}

}  // namespace
}  // namespace fq::pool_test
