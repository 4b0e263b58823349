#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "calib/magnitudes.h"
#include "fakequant/calib/detail/one_pass_calibrator.h"
#include "fakequant/core/error.h"
#include "fakequant/core/io/state_dict.h"

namespace fq::one_pass_test {
namespace {

using test::magnitudes;
using test::tensor;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

/// The bins that cover every value, by the definition.
std::vector<std::int64_t> slow_counts(const std::vector<float>& v, int bins, int exponent, bool skip_zeros) {
  std::vector<std::int64_t> counts(2 * static_cast<std::size_t>(bins));
  for (const float e : v)
    if (e != 0 || !skip_zeros)
      ++counts[static_cast<std::size_t>(
          std::floor(std::ldexp(std::fabs(static_cast<double>(e)), -exponent)))];
  return counts;
}

TEST(OnePassHistogram, CountsMatchTheDefinition) {
  for (const int bins : {2, 3, 100, 2048, 32768})
    for (const std::size_t count : {1, 511, 513, 300001})
      for (const bool skip_zeros : {false, true}) {
        const auto v = magnitudes(count, static_cast<std::uint32_t>(bins));
        OnePassHistogram h(bins, skip_zeros);
        h.collect(tensor(v),
                  std::fabs(*std::ranges::max_element(v, {}, [](float e) { return std::fabs(e); })));
        EXPECT_EQ(h.counts(), slow_counts(v, bins, h.exponent(), skip_zeros)) << bins << ' ' << count;
      }
}

TEST(OnePassHistogram, GridIsTheSmallestThatCoversTheMaximum) {
  const auto exponent = [](float largest) {
    OnePassHistogram h(4);
    h.collect(Tensor::from({largest}), largest);
    return h.exponent();
  };
  EXPECT_EQ(exponent(7.5f), 0);  // 8 bins of width 1
  EXPECT_EQ(exponent(8.0f), 1);
  EXPECT_EQ(exponent(std::nextafter(8.0f, 0.0f)), 0);
  EXPECT_EQ(exponent(std::numeric_limits<float>::max()), 125);
  EXPECT_EQ(exponent(1e-44f), OnePassHistogram::min_exponent);
}

TEST(OnePassHistogram, EdgesEndAfterTheMaximum) {
  OnePassHistogram h(4);
  h.collect(Tensor::from({0.0f, -2.5f, 6.0f}), 6.0f);
  EXPECT_EQ(h.histogram().counts, (std::vector<std::int64_t>{1, 0, 1, 0, 0, 0, 1}));
  EXPECT_EQ(h.histogram().edges, (std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7}));
  const float most = std::numeric_limits<float>::max();
  h.collect(Tensor::from({most}), most);
  EXPECT_EQ(h.histogram().edges.back(), most);
  EXPECT_EQ(h.histogram().counts, (std::vector<std::int64_t>{3, 0, 0, 0, 0, 0, 0, 1}));
}

TEST(OnePassCalibrator, MatchesTheHistogramOfTheSameGrid) {
  OnePassCalibrator calibrator("one_pass", {.num_bins = 512});
  calibrator.collect(tensor(magnitudes(30000, 9)));
  const Histogram h = calibrator.counts().histogram();
  EXPECT_GE(h.counts.size(), 512u);
  EXPECT_EQ(h.total(), 30000);
  EXPECT_EQ(calibrator.compute_amax({.percentile = 99}).item(), amax_by_percentile(h, 99));
  EXPECT_EQ(calibrator.compute_amax({.method = "entropy"}).item(), amax_by_entropy(h, 8, false, 1, 128));
  EXPECT_EQ(calibrator.compute_amax({.method = "mse", .num_bits = 4}).item(),
            amax_by_mse(h, 4, false, 1, 128));
}

TEST(OnePassCalibrator, HandlesZerosAndSingleValues) {
  for (const std::string_view method : {"one_pass", "one_pass_entropy", "one_pass_mse"}) {
    const auto zeros = make_calibrator(method), ones = make_calibrator(method);
    zeros->collect(Tensor::zeros({1000}));
    EXPECT_EQ(zeros->compute_amax().item(), 0.0) << method;
    ones->collect(Tensor::full({1000}, -3.0));
    EXPECT_NEAR(ones->compute_amax().item(), 3.0, 3.0 / 2048) << method;  // a bin
    zeros->collect(Tensor::full({1}, 1e-30));
    EXPECT_LE(zeros->compute_amax().item(), 1.001e-30);
  }
  OnePassCalibrator skipping("one_pass", {.skip_zeros = true});
  skipping.collect(Tensor::zeros({10}));
  skipping.collect(Tensor::from({0.0f, 4.0f}));
  EXPECT_EQ(skipping.counts().histogram().total(), 1);
}

TEST(OnePassCalibrator, KeepsTheLargestMagnitude) {
  OnePassCalibrator a, b, none;
  EXPECT_EQ(a.largest(), std::nullopt);
  a.collect(Tensor::from({0.3f, -2.7f}));
  a.collect(Tensor::from({1.0f}));
  b.collect(Tensor::from({-3.1f}));
  EXPECT_EQ(a.largest(), 2.7f);
  a.merge(none);
  EXPECT_EQ(a.largest(), 2.7f);
  none.merge(a);
  EXPECT_EQ(none.largest(), 2.7f);
  a.merge(b);
  EXPECT_EQ(a.largest(), 3.1f);
  StateDict state = a.state_dict(), without;
  for (const auto& [name, tensor] : state.tensors()) without.set(name, tensor);
  for (const auto& [name, value] : state.attributes().items())
    if (name != "largest") without.set_attribute(name, value);
  b.load_state(state);
  EXPECT_EQ(b.largest(), 3.1f);
  b.load_state(without);  // one that was saved before states had it
  EXPECT_EQ(b.largest(), std::nullopt);
  b.collect(Tensor::from({9.0f}));
  EXPECT_EQ(b.largest(), std::nullopt);
  a.merge(b);
  EXPECT_EQ(a.largest(), std::nullopt);
  b.reset();
  b.collect(Tensor::from({5.0f}));
  EXPECT_EQ(b.largest(), 5.0f);
}

TEST(OnePassCalibrator, RejectsInvalidInputWithoutChange) {
  OnePassCalibrator calibrator("one_pass", {.num_bins = 128});
  calibrator.collect(tensor(magnitudes(500, 3)));
  const StateDict before = calibrator.state_dict();
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()})
    EXPECT_THROW(calibrator.collect(Tensor::from({1e9f, bad})), NumericError);
  for (const double p : {-1.0, 101.0, std::nan("")})
    EXPECT_THAT([&] { (void)calibrator.compute_amax({.percentile = p}); },
                ThrowsMessage<ArgumentError>(HasSubstr("use 0 to 100")));
  EXPECT_THROW((void)calibrator.compute_amax({.method = "one_pass"}), ArgumentError);
  EXPECT_TRUE(bitwise_equal(calibrator.state_dict(), before));
  EXPECT_THAT([] { OnePassCalibrator("one_pass", {.axis = 0}); },
              ThrowsMessage<ArgumentError>(HasSubstr("histograms are per tensor")));
  for (const int bins : {1, 32769})
    EXPECT_THAT([&] { OnePassCalibrator("one_pass", {.num_bins = bins}); },
                ThrowsMessage<ArgumentError>(HasSubstr("use 2 to 32768")));
  EXPECT_THROW(OnePassCalibrator("percentile"), ArgumentError);
}

TEST(OnePassCalibrator, RejectsDamagedStates) {
  const auto source = make_calibrator("one_pass", {.num_bins = 128}),
             target = make_calibrator("one_pass", {.num_bins = 128});
  source->collect(tensor(magnitudes(600, 5)));
  const auto expect_error = [&](auto&& damage) {
    StateDict state = source->state_dict();
    damage(state);
    EXPECT_THROW(target->load_state(state), ArgumentError);
    EXPECT_TRUE(target->empty());
  };
  const Tensor counts = source->state_dict().at("counts");
  const auto with = [&](std::size_t at, std::int64_t count) {
    auto v = counts.to_vector<std::int64_t>();
    v[at] = count;
    return Tensor::from(v, {256});
  };
  expect_error([](StateDict& s) { s.set_attribute("num_bins", 127); });
  expect_error([](StateDict& s) { s.set_attribute("largest", "3"); });
  expect_error([](StateDict& s) { s.set_attribute("largest", -1); });
  expect_error([](StateDict& s) { s.set_attribute("skip_zeros", true); });
  expect_error([](StateDict& s) { s.set_attribute("skip_zeros", 0); });
  for (const std::int64_t exponent : {-127L, 128L, 1L << 40})
    expect_error([&](StateDict& s) { s.set_attribute("exponent", exponent); });
  expect_error([](StateDict& s) { s.set("counts", Tensor::zeros({256}, DType::i64)); });  // no such exponent
  expect_error([](StateDict& s) { s.set("counts", Tensor::zeros({255}, DType::i64)); });
  expect_error([](StateDict& s) { s.set("counts", Tensor::zeros({256})); });
  expect_error([&](StateDict& s) { s.set("counts", with(3, -1)); });
  expect_error([&](StateDict& s) { s.set("counts", with(3, std::numeric_limits<std::int64_t>::max())); });
}

}  // namespace
}  // namespace fq::one_pass_test
