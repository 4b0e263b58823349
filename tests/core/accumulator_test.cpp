#include "fakequant/core/accumulator.h"

#include <cmath>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/core/ops/ops.h"
#include "fakequant/core/tape.h"

namespace fq::accumulator_test {
namespace {

Grid make_grid(float scale, IntFormat format, int zero_point = 0) {
  Grid grid = Grid::from_amax(format, {}, Tensor::scalar(1.0), "q", false, zero_point);
  grid.scale = Tensor::scalar(scale);
  grid.amax = Tensor::scalar(scale * static_cast<float>(format.upper()));
  return grid;
}

float saturate(float v, const IntFormat& f) {
  return std::min(std::max(v, static_cast<float>(f.lower())), static_cast<float>(f.upper()));
}

std::vector<std::int32_t> random_sums(std::size_t count, int range) {
  std::mt19937 random(7);
  std::uniform_int_distribution<std::int32_t> sum(-range, range);
  std::vector<std::int32_t> out(count);
  for (auto& v : out) v = sum(random);
  return out;
}

TEST(Accumulator, ProductRequantizesWithOneMultiplyPerChannel) {
  const auto sums = random_sums(2 * 3 * 4 * 5, 200000);
  const std::vector<float> scale{1.1e-4f, 3.7e-5f, 9.9e-4f};
  const std::vector<std::int32_t> bias{100, -2000, 7};
  const Tensor rows = Tensor::from(sums, {2, 3, 4, 5});
  const IntFormat format{8, true, false};
  const Grid grid = make_grid(0.037f, format);
  for (const Layout layout : {Layout::row_major, Layout::channels_last})
    for (const bool relu : {false, true}) {
      const Accumulator x{ProductSums{rows.to(layout), Tensor::from(bias, {3}), Tensor::from(scale, {3}), 1},
                          relu};
      const QuantizedTensor q = requantize(x, grid);
      const auto codes = q.codes.to_vector<std::uint8_t>();
      const auto values = to_float(x).to_vector<float>();
      const auto mask = q.mask.to(Layout::row_major).to(Layout::row_major);
      for (std::size_t i = 0; i < sums.size(); ++i) {
        const std::size_t c = i / 20 % 3;
        const auto a = static_cast<float>(sums[i] + bias[c]);
        const float m = scale[c] / 0.037f;
        EXPECT_EQ(codes[i], saturate(std::nearbyint(a * m), format)) << i;
        const float v = a * scale[c];
        EXPECT_EQ(values[i], relu ? std::max(v, 0.0f) : v);
        const auto* bits = static_cast<const std::uint8_t*>(mask.raw());
        const bool pass = (relu ? v > 0 : v >= 0) && v <= grid.amax.item();
        EXPECT_EQ((bits[i / 8] >> (i % 8)) & 1, pass) << i;
      }
    }
}

TEST(Accumulator, AdditionOfEveryPairOfCodesFollowsTheEngine) {
  const IntFormat format{8, false, false};
  std::vector<std::int8_t> a, b;
  for (int i = -128; i < 128; ++i)
    for (int j = -128; j < 128; ++j) {
      a.push_back(static_cast<std::int8_t>(i));
      b.push_back(static_cast<std::int8_t>(j));
    }
  const Shape shape{256, 256};
  for (const int za : {0, 128})
    for (const int zy : {0, 128}) {
      const float sa = 0.0213f, sb = 0.0471f, sy = 0.0533f;
      const Accumulator x{CodeAddition{{Tensor::from(a, shape), make_grid(sa, format, za), {}},
                                       {Tensor::from(b, shape), make_grid(sb, format, 128), {}}},
                          false};
      const auto codes = requantize(x, make_grid(sy, format, zy)).codes.to_vector<std::int8_t>();
      const float ra = sa / sy, rb = sb / sy;
      const float fa = ra * static_cast<float>(za), fb = rb * 128.0f;
      const float fused = static_cast<float>(zy) - (fa + fb);
      for (std::size_t i = 0; i < a.size(); ++i) {
        const float inner = std::fma(static_cast<float>(b[i] + 128), rb, fused);
        const float v =
            std::nearbyint(std::fma(static_cast<float>(a[i] + za), ra, inner)) - static_cast<float>(zy);
        ASSERT_EQ(codes[i], saturate(v, format)) << i << ' ' << za << ' ' << zy;
      }
    }
}

TEST(Accumulator, PooledSumsUseOneMultiply) {
  const auto sums = random_sums(4 * 8, 16 * 255);
  const Accumulator x{PooledSums{Tensor::from(sums, {4, 8, 1, 1}), Tensor::scalar(0.0125f), 16}, false};
  const IntFormat format{8, false, false};
  const auto codes = requantize(x, make_grid(0.021f, format)).codes.to_vector<std::int8_t>();
  const float m = static_cast<float>(Tensor::scalar(0.0125f).item()) / (0.021f * 16.0f);
  for (std::size_t i = 0; i < sums.size(); ++i)
    EXPECT_EQ(codes[i], saturate(std::nearbyint(static_cast<float>(sums[i]) * m), format));
}

TEST(Accumulator, ReshapeRoundsTheSameCodesInLogicalOrder) {
  const auto sums = random_sums(2 * 3 * 4 * 5, 20000);
  const Tensor scale = Tensor::from({1.0e-3f, 2.0e-3f, 5.0e-3f});
  const Accumulator x{ProductSums{Tensor::from(sums, {2, 3, 4, 5}).to(Layout::channels_last), {}, scale, 1},
                      false};
  const Accumulator flat{AccumulatorMove{{x}, ReshapeMove{{2, 60}}}, true};
  Accumulator relu = x;
  relu.relu = true;
  const Grid grid = make_grid(0.1f, {8, true, false});
  const QuantizedTensor a = requantize(relu, grid), b = requantize(flat, grid);
  EXPECT_EQ(b.codes.shape(), (Shape{2, 60}));
  EXPECT_EQ(a.codes.to_vector<std::uint8_t>(), b.codes.to_vector<std::uint8_t>());
  EXPECT_TRUE(bitwise_equal(a.mask.to(Layout::row_major).reshape({2, 60}), b.mask));
}

TEST(Accumulator, ConcatJoinsTheMasksOfItsParts) {
  const Tensor scale = Tensor::scalar(1.0e-3);
  const Grid grid = make_grid(0.05f, {8, true, false});
  for (const Layout layout : {Layout::row_major, Layout::channels_last})
    for (const std::int64_t channels : {8, 3}) {
      const Shape shape{2, channels, 5, 7};
      const auto sums = random_sums(static_cast<std::size_t>(numel(shape)), 20000);
      const Accumulator part{ProductSums{Tensor::from(sums, shape).to(layout), {}, scale, 1}, false};
      const Accumulator twice{AccumulatorConcat{{part, part}, 1}, true};
      Accumulator relu = part;
      relu.relu = true;
      const auto one = requantize(relu, grid), both = requantize(twice, grid);
      EXPECT_EQ(both.mask.layout(), layout);
      const auto passed = [](const QuantizedTensor& q) {
        return apply_mask(Tensor::full(q.shape(), 1.0).to(q.layout()), q.mask).to(Layout::row_major);
      };
      const auto expected = passed(one).to_vector<float>(), got = passed(both).to_vector<float>();
      const auto image = static_cast<std::size_t>(channels * 35);
      for (std::size_t i = 0; i < got.size(); ++i)
        ASSERT_EQ(got[i], expected[i / (2 * image) * image + i % image]) << i;
    }
}

TEST(Accumulator, BiasCodesRoundToTheGridAndStayInRange) {
  const Tensor codes =
      bias_codes(Tensor::from({0.5f, -0.25f, 1e9f}), Tensor::from({0.1f, 0.1f, 1e-9f}), 1000);
  EXPECT_EQ(codes.to_vector<std::int32_t>(), (std::vector<std::int32_t>{5, -2, 2147483647 - 1000}));
  EXPECT_EQ(bias_codes(Tensor::scalar(0.0), Tensor::scalar(0.0), 0).to_vector<std::int32_t>()[0], 0);
}

TEST(Accumulator, RejectsNaNInABias) {
  const Tensor b = Tensor::from({0.5f, std::numeric_limits<float>::quiet_NaN()});
  EXPECT_THROW((void)bias_codes(b, Tensor::scalar(0.1), 1000), NumericError);
  const NoGrad no_grad;
  const auto codes = [](Shape shape, const char* name) {
    return ops::quantize(Variable(Tensor::full(std::move(shape), 1.0)),
                         Grid::from_amax(IntFormat{}, {}, Tensor::scalar(1.0), name));
  };
  try {
    (void)ops::linear(codes({1, 3}, "fc.input_quantizer"), codes({2, 3}, "fc.weight_quantizer"), Variable(b));
    FAIL() << "the NaN was not reported";
  } catch (const NumericError& error) {
    EXPECT_STREQ(error.what(), "[quantize] a NaN is in the bias of the layer with 'fc.weight_quantizer'");
  }
}

TEST(Accumulator, RejectsFloatFormatsAndChannels) {
  const Accumulator x{PooledSums{Tensor::zeros({1, 2}, DType::i32), Tensor::scalar(1.0), 1}, false};
  EXPECT_THROW((void)requantize(x, Grid::from_amax(FloatFormat{4, 3}, {}, Tensor::scalar(1.0))),
               ArgumentError);
  EXPECT_THROW(
      (void)requantize(x, Grid::from_amax(IntFormat{}, Granularity::per_axis(1), Tensor::full({2}, 1.0))),
      ArgumentError);
}

}  // namespace
}  // namespace fq::accumulator_test
