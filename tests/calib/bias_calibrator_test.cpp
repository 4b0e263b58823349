#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include <gtest/gtest.h>

#include "calib/random_tensors.h"
#include "fakequant/calib/calibrator.h"
#include "fakequant/core/error.h"
#include "fakequant/core/io/state_dict.h"

namespace fq::bias_calibrator_test {
namespace {

TEST(BiasCalibrator, ComputesMeanAndMidpointOfEachRange) {
  for (unsigned seed = 0; seed < 20; ++seed)
    for (int axis = -1; axis < 3; ++axis) {
      const Axes axes = axis < 0 ? Axes() : Axes(axis);
      BiasCalibrator mean(BiasMethod::mean, axes), middle(BiasMethod::max_min, axes);
      const Tensor a = heavy_tailed({4, 5, 60}, seed), b = heavy_tailed({4, 5, 60}, seed + 11);
      for (const Tensor& x : {a, b}) {
        mean.collect(x);
        middle.collect(x);
      }
      const auto means = mean.compute_bias().to_vector<float>(),
                 middles = middle.compute_bias().to_vector<float>();
      for (std::int64_t i = 0; i < static_cast<std::int64_t>(means.size()); ++i) {
        auto all = (axis < 0 ? a : slice_elements(a, axis, i)).to_vector<float>();
        for (const float v : (axis < 0 ? b : slice_elements(b, axis, i)).to_vector<float>()) all.push_back(v);
        double sum = 0, size = 0;
        for (const float v : all) {
          sum += static_cast<double>(v);
          size += std::fabs(static_cast<double>(v));
        }
        const auto [low, high] = std::ranges::minmax(all);
        const auto k = static_cast<std::size_t>(i);
        const double count = static_cast<double>(all.size());
        // Sums of doubles in another order, then one rounding to f32; the mean may cancel.
        EXPECT_NEAR(means[k], sum / count, 0x1p-23 * std::fabs(sum / count) + 1e-13 * size / count);
        EXPECT_EQ(middles[k], (high + low) / 2);
      }
    }
}

TEST(BiasCalibrator, ResumesAndKeepsTheBatchType) {
  for (const BiasMethod method : {BiasMethod::mean, BiasMethod::max_min}) {
    BiasCalibrator whole(method, 1), first(method, 1), second(method, 1);
    EXPECT_THROW((void)whole.compute_bias(), ArgumentError);
    for (BiasCalibrator* c : {&whole, &first}) c->collect(heavy_tailed({4, 5}, 1).to(DType::bf16));
    second.load_state(first.state_dict());
    for (BiasCalibrator* c : {&whole, &second}) c->collect(heavy_tailed({3, 5}, 2).to(DType::bf16));
    EXPECT_TRUE(bitwise_equal(whole.compute_bias(), second.compute_bias()));
    EXPECT_TRUE(bitwise_equal(whole.state_dict(), second.state_dict()));
    EXPECT_EQ(whole.compute_bias().dtype(), DType::bf16);
    EXPECT_EQ(whole.compute_bias().shape(), (Shape{1, 5}));
    second.load_state(StateDict());
    EXPECT_TRUE(second.empty());
  }
}

TEST(BiasCalibrator, IsUnchangedAfterAnError) {
  BiasCalibrator c(BiasMethod::max_min, 0), mean;
  c.collect(heavy_tailed({4, 10}, 1));
  mean.collect(heavy_tailed({4, 10}, 1));
  const StateDict before = c.state_dict();
  c.collect(Tensor::zeros({0, 10}));
  EXPECT_THROW(c.collect(Tensor::full({4, 10}, std::numeric_limits<double>::infinity())), NumericError);
  EXPECT_THROW(c.collect(heavy_tailed({5, 10}, 1)), ArgumentError);
  EXPECT_THROW(c.collect(Tensor::zeros({4, 10}, DType::i32)), ArgumentError);
  EXPECT_THROW(c.load_state(mean.state_dict()), ArgumentError);
  StateDict bad = c.state_dict();
  bad.set("smallest", Tensor::full({4, 1}, std::numeric_limits<double>::quiet_NaN(), DType::f64));
  EXPECT_THROW(c.load_state(bad), ArgumentError);
  bad = c.state_dict();
  bad.set("count", Tensor::from({std::int64_t{0}}));
  EXPECT_THROW(c.load_state(bad), ArgumentError);
  EXPECT_TRUE(bitwise_equal(c.state_dict(), before));
}

}  // namespace
}  // namespace fq::bias_calibrator_test
