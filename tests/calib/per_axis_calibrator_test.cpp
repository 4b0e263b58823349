#include "fakequant/calib/detail/per_axis_calibrator.h"

#include <limits>
#include <nlohmann/json.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "calib/random_tensors.h"
#include "fakequant/core/error.h"
#include "fakequant/core/io/state_dict.h"

namespace fq::per_axis_calibrator_test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(PerAxisCalibrator, CalibratesEachIndexSeparately) {
  const CalibratorOptions small{.num_bins = 200};
  const AmaxOptions options{.percentile = 95, .start_bin = 10};
  for (const std::string_view method :
       {"percentile", "entropy", "mse", "octav", "one_pass", "one_pass_octav"})
    for (int axis = 0; axis < 3; ++axis)
      for (const Layout layout : {Layout::row_major, Layout::channels_last}) {
        const auto whole = make_calibrator(method, {.axis = axis - 4, .num_bins = 200});
        const Tensor batches[] = {heavy_tailed({4, 3, 5, 40}, 3), heavy_tailed({4, 3, 5, 40}, 6)};
        for (const Tensor& x : batches) whole->collect(x.to(layout));
        const Tensor amax = whole->compute_amax(options);
        ASSERT_EQ(amax.numel(), batches[0].dim(axis));
        for (std::int64_t i = 0; i < amax.numel(); ++i) {
          const auto alone = make_calibrator(method, small);
          for (const Tensor& x : batches) alone->collect(slice_elements(x, axis, i));
          EXPECT_EQ(amax.to_vector<float>()[static_cast<std::size_t>(i)], alone->compute_amax(options).item())
              << method << " axis " << axis << " index " << i;
        }
      }
}

TEST(PerAxisCalibrator, HandlesConstantsAndZeros) {
  const auto c = make_calibrator("percentile", {.axis = 0});
  c->collect(Tensor::from({0.0f, 0.0f, 3.0f, 3.0f}, {2, 2}));
  EXPECT_EQ(c->compute_amax().shape(), (Shape{2, 1}));
  const auto amax = c->compute_amax().to_vector<float>();
  EXPECT_EQ(amax[0], 0);
  EXPECT_NEAR(amax[1], 3, 3.0 / 2048);  // the left edge of the last bin
  const auto second = make_calibrator("percentile", {.axis = 0});
  second->load_state(c->state_dict());
  EXPECT_TRUE(bitwise_equal(second->state_dict(), c->state_dict()));
}

TEST(PerAxisCalibrator, IsUnchangedAfterAnError) {
  const auto c = make_calibrator("mse", {.axis = 0});
  c->collect(heavy_tailed({4, 100}, 1));
  const StateDict before = c->state_dict();
  Tensor bad = heavy_tailed({4, 100}, 2);
  bad.mutable_data<float>()[399] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT([&] { c->collect(bad); }, ThrowsMessage<NumericError>(HasSubstr("a NaN")));
  EXPECT_THAT(
      [&] {
        c->collect(heavy_tailed({5, 100}, 2));
      },
      ThrowsMessage<ArgumentError>(HasSubstr("use batches of one shape")));
  EXPECT_TRUE(bitwise_equal(c->state_dict(), before));
}

TEST(PerAxisCalibrator, MergesLikeItsHistograms) {
  const CalibratorOptions options{.axis = 0, .num_bins = 64};
  const auto whole = make_calibrator("one_pass", options), a = make_calibrator("one_pass", options),
             b = make_calibrator("one_pass", options);
  for (unsigned k = 0; k < 4; ++k) {
    whole->collect(heavy_tailed({3, 200}, k));
    (k < 2 ? a : b)->collect(heavy_tailed({3, 200}, k));
  }
  a->merge(*b);
  EXPECT_TRUE(bitwise_equal(a->state_dict(), whole->state_dict()));
  const auto other = make_calibrator("one_pass", {.axis = 1, .num_bins = 64}),
             c = make_calibrator("mse", options);
  EXPECT_THROW(a->merge(*other), ArgumentError);
  c->collect(heavy_tailed({3, 200}, 1));
  EXPECT_THROW(c->merge(*c), ArgumentError);
  const auto wider = make_calibrator("one_pass", options);
  wider->collect(heavy_tailed({4, 200}, 1));
  EXPECT_THROW(a->merge(*wider), ArgumentError);
  EXPECT_TRUE(bitwise_equal(a->state_dict(), whole->state_dict()));
}

TEST(PerAxisCalibrator, RejectsInvalidInput) {
  EXPECT_THAT([] { (void)make_calibrator("mse", {.axis = 0, .grid = HistogramGrid::numpy}); },
              ThrowsMessage<ArgumentError>(HasSubstr("leave axis out")));
  EXPECT_THROW(PerAxisCalibrator("max", {.axis = 0}), ArgumentError);
  const auto c = make_calibrator("percentile", {.axis = 0, .num_bins = 1 << 16});
  EXPECT_THAT(
      [&] {
        c->collect(Tensor::zeros({257, 2}));
      },
      ThrowsMessage<ArgumentError>(HasSubstr("use fewer bins, max or mse_search")));
  EXPECT_TRUE(c->empty());
}

TEST(PerAxisCalibrator, RejectsDamagedStates) {
  const auto c = make_calibrator("percentile", {.axis = 0, .num_bins = 50});
  c->collect(heavy_tailed({4, 100}, 1));
  const auto expect_error = [&](auto&& damage) {
    StateDict state = c->state_dict();
    damage(state);
    const auto other = make_calibrator("percentile", {.axis = 0, .num_bins = 50});
    EXPECT_THROW(other->load_state(state), ArgumentError);
    EXPECT_TRUE(other->empty());
  };
  expect_error([](StateDict& s) { s.set("shape", Tensor::from({std::int64_t{-4}, std::int64_t{-1}})); });
  expect_error([](StateDict& s) { s.set("shape", Tensor::from({std::int64_t{5}, std::int64_t{1}})); });
  expect_error([](StateDict& s) { s.set_attribute("ranges", 3); });
  expect_error([](StateDict& s) { s.set_attribute("ranges", {1, 2, 3, 4}); });
  expect_error([](StateDict& s) { s.set("values/counts", Tensor::zeros({7}, DType::i64)); });
  expect_error(
      [](StateDict& s) { s.set("sizes/counts", Tensor::from(std::vector<std::int64_t>(4, -1), {4})); });
  expect_error([](StateDict& s) { s.set("values/edges", Tensor::zeros({204})); });
}

}  // namespace
}  // namespace fq::per_axis_calibrator_test
