#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "calib/magnitudes.h"
#include "fakequant/calib/detail/per_axis_calibrator.h"
#include "fakequant/calib/detail/two_pass_calibrator.h"
#include "fakequant/core/error.h"
#include "fakequant/core/io/state_dict.h"

namespace fq::two_pass_test {
namespace {

using test::magnitudes;
using test::tensor;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

using Parts = std::vector<std::vector<float>>;

Parts cut(const std::vector<float>& v, const std::vector<std::size_t>& ends) {
  Parts parts;
  std::size_t begin = 0;
  for (const std::size_t end : ends) {
    parts.emplace_back(v.begin() + static_cast<std::ptrdiff_t>(begin),
                       v.begin() + static_cast<std::ptrdiff_t>(end));
    begin = end;
  }
  parts.emplace_back(v.begin() + static_cast<std::ptrdiff_t>(begin), v.end());
  return parts;
}

void see(Calibrator& calibrator, const Parts& parts) {
  for (const auto& part : parts) calibrator.collect(tensor(part));
}

void calibrate(Calibrator& calibrator, const Parts& parts) {
  see(calibrator, parts);
  calibrator.next_pass();
  see(calibrator, parts);
}

TEST(TwoPassCalibrator, CountsAreInvariantToTheSplit) {
  const auto v = magnitudes(20000, 3);
  Histogram whole;
  whole.collect(tensor(v), std::fabs(*std::ranges::max_element(v, {}, [](float e) { return std::fabs(e); })),
                512, false);
  for (const auto& ends : {std::vector<std::size_t>{}, {1}, {777, 778, 15000}, {19999}}) {
    TwoPassCalibrator calibrator("two_pass", {.num_bins = 512});
    EXPECT_EQ(calibrator.passes(), 2);
    calibrate(calibrator, cut(v, ends));
    EXPECT_EQ(calibrator.histogram().counts, whole.counts);
    EXPECT_EQ(calibrator.histogram().edges, whole.edges);
    EXPECT_EQ(calibrator.compute_amax({.percentile = 99}).item(), amax_by_percentile(whole, 99));
    EXPECT_EQ(calibrator.compute_amax({.method = "mse"}).item(), amax_by_mse(whole, 8, false, 1, 128));
  }
}

TEST(TwoPassCalibrator, MethodSelectsTheHistogramSearch) {
  const auto v = magnitudes(5000, 4);
  for (const std::string reading : {"entropy", "mse", "octav"}) {
    TwoPassCalibrator own("two_pass_" + reading), named("two_pass");
    calibrate(own, {v});
    calibrate(named, {v});
    EXPECT_EQ(own.compute_amax().item(), named.compute_amax({.method = reading}).item()) << reading;
  }
  EXPECT_THAT([] { TwoPassCalibrator("two_pass_max"); },
              ThrowsMessage<ArgumentError>(HasSubstr("'two_pass_max' is unknown: use two_pass")));
}

TEST(TwoPassCalibrator, MergedHalvesMatchOneRun) {
  const auto parts = cut(magnitudes(9000, 5), {4000});
  TwoPassCalibrator whole, a, b;
  calibrate(whole, parts);
  a.collect(tensor(parts[0]));
  b.collect(tensor(parts[1]));
  a.merge(b);
  b.load_state(a.state_dict());
  TwoPassCalibrator first, second;
  for (auto* half : {&first, &second}) {
    half->load_state(a.state_dict());
    half->next_pass();
  }
  first.collect(tensor(parts[0]));
  second.collect(tensor(parts[1]));
  first.merge(second);
  EXPECT_EQ(first.histogram().counts, whole.histogram().counts);
  EXPECT_EQ(first.compute_amax().item(), whole.compute_amax().item());
}

TEST(TwoPassCalibrator, RestoresStatesInEitherPass) {
  const auto v = magnitudes(3000, 6);
  TwoPassCalibrator whole, resumed, again;
  calibrate(whole, {v});
  resumed.collect(tensor(v));
  again.load_state(resumed.state_dict());
  again.next_pass();
  again.collect(tensor(v));
  EXPECT_EQ(again.compute_amax().item(), whole.compute_amax().item());
  TwoPassCalibrator loaded;
  loaded.load_state(whole.state_dict());
  EXPECT_EQ(loaded.histogram().counts, whole.histogram().counts);
  auto damaged = whole.state_dict();
  damaged.set("largest", Tensor::from({1e9f}));
  EXPECT_THAT([&] { loaded.load_state(damaged); }, ThrowsMessage<ArgumentError>(HasSubstr("it is damaged")));
  TwoPassCalibrator other("two_pass", {.num_bins = 64});
  EXPECT_THAT([&] { other.load_state(whole.state_dict()); },
              ThrowsMessage<ArgumentError>(HasSubstr("this calibrator 64 and false")));
}

TEST(TwoPassCalibrator, HandlesOnlyZeros) {
  TwoPassCalibrator calibrator;
  calibrate(calibrator, {{0, 0}, {0}});
  EXPECT_EQ(calibrator.histogram().zeros, 3);
  EXPECT_EQ(calibrator.compute_amax().item(), 0);
}

TEST(TwoPassCalibrator, KeptAxesHaveOneHistogramEach) {
  const auto v = magnitudes(4000, 7);
  const Tensor x = Tensor::from(v, {4, 1000});
  const auto calibrator = make_calibrator("two_pass_mse", {.axis = {0}});
  EXPECT_EQ(calibrator->passes(), 2);
  calibrator->collect(x);
  calibrator->next_pass();
  calibrator->collect(x);
  const auto amax = calibrator->compute_amax().to_vector<float>();
  for (std::size_t row = 0; row < 4; ++row) {
    TwoPassCalibrator one("two_pass_mse");
    calibrate(one, {{v.begin() + static_cast<std::ptrdiff_t>(1000 * row),
                     v.begin() + static_cast<std::ptrdiff_t>(1000 * (row + 1))}});
    EXPECT_EQ(amax[row], one.compute_amax().item()) << row;
  }
}

TEST(TwoPassCalibrator, RejectsASecondPassOverOtherData) {
  TwoPassCalibrator calibrator;
  calibrator.collect(Tensor::from({1.0f, -2.0f}));
  EXPECT_THAT([&] { (void)calibrator.compute_amax(); },
              ThrowsMessage<ArgumentError>(HasSubstr("only the first pass was collected")));
  calibrator.next_pass();
  EXPECT_THAT([&] { calibrator.collect(Tensor::from({3.0f})); },
              ThrowsMessage<ArgumentError>(HasSubstr("a magnitude of 3, the first had 2 at most")));
  TwoPassCalibrator first, larger;
  first.collect(Tensor::from({2.0f}));
  EXPECT_THAT([&] { calibrator.merge(first); },
              ThrowsMessage<ArgumentError>(HasSubstr("merge after the same pass")));
  larger.collect(Tensor::from({4.0f}));
  larger.next_pass();
  EXPECT_THAT([&] { calibrator.merge(larger); },
              ThrowsMessage<ArgumentError>(HasSubstr("counts up to 2, the other up to 4")));
}

}  // namespace
}  // namespace fq::two_pass_test
