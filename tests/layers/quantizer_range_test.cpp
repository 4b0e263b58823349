// Settings, range and grid of a quantizer, each alone.

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/core/random.h"
#include "fakequant/layers/quantizer/detail/grid_cache.h"
#include "fakequant/layers/quantizer/tensor_quantizer.h"

namespace fq::quantizer_range_test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

QuantParams named(QuantDescriptorOptions options) {
  QuantParams out;
  out.name = "fc.input_quantizer";
  out.descriptor = QuantDescriptor(std::move(options));
  return out;
}

TEST(QuantParams, ErrorsNameTheQuantizer) {
  check(named({}));
  for (const double momentum : {0.0, -1.0, 1.5, std::numeric_limits<double>::quiet_NaN()}) {
    QuantParams s = named({});
    s.momentum = momentum;
    EXPECT_THAT([&] { check(s); }, ThrowsMessage<ArgumentError>(HasSubstr("'fc.input_quantizer'")));
  }
  QuantParams s = named({.axis = 0, .learn_amax = true});
  check(s);
  s.arithmetic = Arithmetic::reference;
  EXPECT_THAT([&] { check(s); }, ThrowsMessage<ArgumentError>(HasSubstr("leave axis out")));
}

TEST(QuantParams, ArithmeticSelectsTheGradient) {
  QuantParams s;
  EXPECT_FALSE(s.passes_through());
  s.arithmetic = Arithmetic::reference;
  EXPECT_TRUE(s.passes_through());
  s.pass_through_bwd = false;
  EXPECT_FALSE(s.passes_through());
}

TEST(QuantizerRange, RejectsInvalidRangesWithoutChange) {
  const QuantParams params = named({.axis = 0});
  QuantizerRange range(params);
  EXPECT_THROW(range.check_known(), ArgumentError);
  range.set(Tensor::from({1.0f, 2.0f}));
  for (const float bad : {-1.0f, std::numeric_limits<float>::infinity(), std::nanf("")})
    EXPECT_THROW(range.set(Tensor::from({1.0f, bad})), ArgumentError);
  EXPECT_THROW(range.set(Tensor::from({1.0f, 2.0f, 3.0f})), ArgumentError);
  EXPECT_EQ(range.amax().to_vector<float>(), (std::vector<float>{1, 2}));
}

TEST(QuantizerRange, AppliesTheDescriptorFactor) {
  const QuantParams params = named({.scale_amax = 0.5});
  QuantizerRange range(params);
  range.set(Tensor::scalar(3));
  EXPECT_EQ(range.used().to_vector<float>(), (std::vector<float>{1.5f}));
  EXPECT_EQ(range.amax().item(), 3);
}

TEST(QuantizerRange, UsesMomentumFromTheFirstInput) {
  QuantParams params = named({});
  params.momentum = 0.25;
  QuantizerRange range(params);
  range.move_towards(Variable(Tensor::from({-4.0f, 1.0f})));
  EXPECT_EQ(range.amax().item(), 4);
  range.move_towards(Variable(Tensor::from({8.0f, 1.0f})));
  EXPECT_EQ(range.amax().item(), 5);
}

TEST(QuantizerRange, FollowsItsDescriptor) {
  QuantParams params = named({});
  QuantizerRange range(params);
  range.set(Tensor::scalar(3));
  const auto change = [&](QuantDescriptorOptions options) {
    const QuantDescriptor before = std::exchange(params.descriptor, QuantDescriptor(std::move(options)));
    range.follow(before);
  };
  change({.num_bits = 4});
  EXPECT_EQ(range.amax().item(), 3);
  change({.num_bits = 4, .learn_amax = true});
  ASSERT_TRUE(range.learned().defined());
  EXPECT_EQ(range.learned().tensor().item(), 3);
  change({.num_bits = 4, .amax = 7.0});
  EXPECT_FALSE(range.learned().defined());
  EXPECT_EQ(range.amax().item(), 7);
  change({.num_bits = 4, .axis = 0});
  EXPECT_FALSE(range.amax().defined());
}

TEST(QuantizerGrid, IsRebuiltAfterAnInPlaceRangeUpdate) {
  const QuantParams params = named({.learn_amax = true});
  QuantizerRange range(params);
  range.keep(Tensor::scalar(127));
  const detail::GridCache grid(params, range);
  EXPECT_EQ(grid.fixed_grid().scale.item(), 1);
  EXPECT_EQ(grid.fixed_grid().scale.raw(), grid.fixed_grid().scale.raw());
  Variable parameter = range.learned();
  parameter.mutable_tensor().mutable_data<float>()[0] = 254;
  EXPECT_EQ(grid.fixed_grid().scale.item(), 2);
}

TEST(QuantizerGrid, IsRebuiltPerInputForDynamicRanges) {
  const QuantParams params = named({.dynamic = true});
  const QuantizerRange range(params);
  const detail::GridCache grid(params, range);
  EXPECT_EQ(grid.input_grid(Variable(Tensor::from({-127.0f}))).scale.item(), 1);
  EXPECT_EQ(grid.input_grid(Variable(Tensor::from({254.0f}))).scale.item(), 2);
  EXPECT_THROW((void)grid.fixed_grid(), ArgumentError);
}

TEST(QuantizerRange, KeepsFileScalesBitwise) {
  QuantParams params = named({.num_bits = 8, .axis = 0});
  QuantizerRange range(params);
  const detail::GridCache grid(params, range);
  std::vector<float> steps;
  for (int i = 0; i < 2048; ++i) steps.push_back(1.5f + static_cast<float>(i) * 0x1p-12f + 0x1p-17f);
  range.set_scale(Tensor::from(steps, {2048}));
  EXPECT_TRUE(range.scale().defined());  // of 128 floats fl(amax / 127) skips one: these
  EXPECT_EQ(grid.fixed_grid().scale.to_vector<float>(), steps);
  range.set(range.amax());
  EXPECT_FALSE(range.scale().defined());
  EXPECT_NE(detail::GridCache(params, range).fixed_grid().scale.to_vector<float>(), steps);
}

TEST(QuantizerRange, RejectsInvalidScales) {
  QuantParams params = named({});
  QuantizerRange range(params);
  for (const float bad : {0.0f, -1.0f, std::numeric_limits<float>::infinity(), 0x1p-40f})
    EXPECT_THROW(range.set_scale(Tensor::scalar(bad)), ArgumentError) << bad;
  range.set_scale(Tensor::scalar(0.5));
  EXPECT_EQ(range.amax().item(), 63.5);
  params.pow2 = true;
  EXPECT_THAT([&] { range.set_scale(Tensor::scalar(0.5)); },
              ThrowsMessage<ArgumentError>(HasSubstr("'fc.input_quantizer' has no scales of its own")));
}

/// Squared error of a block whose codes are -1, 0 and 1 times its range.
double even_error(std::span<const float> block, float amax) {
  double sum = 0;
  for (const float v : block) {
    const double e =
        double(amax) * std::clamp(std::nearbyint(double(v) / double(amax)), -1.0, 1.0) - double(v);
    sum += e * e;
  }
  return sum;
}

/// Blocks are more than a histogram each would have room for.
TEST(QuantizerRange, SearchesTwoBitBlocksInLayersOfAnySize) {
  constexpr std::int64_t width = 4096, block = 32;
  Tensor w = Tensor::empty({width / 4, width});
  fill_normal(w, 0, 1, 1);
  TensorQuantizer q(QuantDescriptor(
      {.num_bits = 2, .block_sizes = BlockSizes{{{-1, block}}}, .calib_method = "mse_search"}));
  q.observer().collect(w);
  q.load_calibrated_amax();
  const auto amax = q.amax().to_vector<float>(), values = w.to_vector<float>();
  ASSERT_EQ(amax.size(), values.size() / block);
  for (std::size_t b = 0; b < amax.size(); b += 1031) {
    const std::span of(values.data() + b * block, std::size_t(block));
    const float largest = std::abs(*std::ranges::max_element(of, {}, [](float v) { return std::abs(v); }));
    const double found = even_error(of, amax[b]);
    for (int i = 0; i < 39; ++i) {
      const double tried = even_error(of, largest * (0.25f + 0.75f * static_cast<float>(i) / 38.0f));
      EXPECT_LE(found, tried * (1 + 1e-5)) << b << " " << i;  // multiples differ in their last bits
    }
  }
}

}  // namespace
}  // namespace fq::quantizer_range_test
