#include "fakequant/calib/detail/mse_search_calibrator.h"

#include <limits>
#include <nlohmann/json.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "calib/random_tensors.h"
#include "fakequant/core/error.h"
#include "fakequant/core/io/state_dict.h"
#include "fakequant/core/numerics/detail/formulas.h"

namespace fq::mse_search_calibrator_test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

float fake_quant(float x, float amax, const CalibratorOptions& o) {
  if (o.num_bits == NumBits(2, 1)) {
    const float scale = amax / 6.0f;
    return scalar::fp4_block_fake_quant(x, scale, scalar::fp4_divisor(scale));
  }
  if (!o.num_bits.is_integer()) {
    const float scale = scalar::modelopt_e4m3_scale(amax);
    return scalar::modelopt_scaled_e4m3(x, scale, 1.0f / scale);
  }
  const float upper = std::ldexp(1.0f, o.num_bits.bits() - (o.is_unsigned ? 0 : 1)) - 1;
  const float lower = o.is_unsigned ? 0 : o.narrow_range ? -upper : -upper - 1;
  const float scale = scalar::modelopt_scale(amax, upper, true);
  return scalar::modelopt_fake_quant(x, scale, scalar::modelopt_divisor(amax, scale, true), lower, upper);
}

double total_error(const Tensor& x, float amax, const CalibratorOptions& o) {
  double sum = 0;
  for (const float v : x.to_vector<float>()) {
    const double error = static_cast<double>(fake_quant(v, amax, o)) - static_cast<double>(v);
    sum += error * error;
  }
  return sum;
}

/// The answer must be a multiple, and none has a smaller error by more than sums of 64 floats round.
void expect_best(const Tensor& x, float first, float amax, const CalibratorOptions& o) {
  double least = std::numeric_limits<double>::infinity();
  bool found = false;
  const std::vector<float> multiples = MseSearchCalibrator(o).multiples();
  for (const float multiple : multiples) {
    least = std::min(least, total_error(x, first * multiple, o));
    found = found || amax == first * multiple;
  }
  EXPECT_TRUE(found) << amax << " is no multiple of " << first;
  EXPECT_LE(total_error(x, amax, o), least * (1 + 64 * 0x1p-24));
}

float largest(const Tensor& x) {
  float out = 0;
  for (const float v : x.to_vector<float>()) out = std::max(out, std::fabs(v));
  return out;
}

std::vector<CalibratorOptions> formats() {
  std::vector<CalibratorOptions> out{{.num_bits = {4, 3}}, {.num_bits = {2, 1}}};
  for (const int bits : {2, 3, 4, 8, 16})
    for (const bool flag : {false, true}) {
      out.push_back({.num_bits = bits, .is_unsigned = flag});
      out.push_back({.num_bits = bits, .narrow_range = flag});
    }
  return out;
}

TEST(MseSearch, MultiplesMatchTorch) {
  const auto bits = [](float v) { return std::bit_cast<std::uint32_t>(v); };
  const auto m = MseSearchCalibrator().multiples();
  ASSERT_EQ(m.size(), 39u);  // torch 2.15: torch.linspace(0.25, 4.0, 39)
  EXPECT_EQ(bits(m[1]), 1051887293u);
  EXPECT_EQ(bits(m[18]), 1073852201u);
  EXPECT_EQ(bits(m[37]), 1081716520u);
  EXPECT_EQ(m.front(), 0.25f);
  EXPECT_EQ(m.back(), 4.0f);
}

TEST(MseSearch, FindsTheBestMultipleOfEveryFormat) {
  for (unsigned seed = 0; seed < 12; ++seed)
    for (const auto& options : formats()) {
      MseSearchCalibrator c(options);
      const Tensor x = heavy_tailed({1777}, seed);
      c.collect(x);
      expect_best(x, largest(x), static_cast<float>(c.compute_amax().item()), options);
    }
}

TEST(MseSearch, SearchesAlongAxesOverBatches) {
  for (CalibratorOptions options : formats()) {
    options.axis = 1;
    MseSearchCalibrator c(options);
    const Tensor a = heavy_tailed({2, 5, 3, 60}, 7), b = heavy_tailed({2, 5, 3, 60}, 6);
    c.collect(a.to(Layout::channels_last));
    c.collect(b);
    const Tensor amax = c.compute_amax();
    ASSERT_EQ(amax.shape(), (Shape{1, 5, 1, 1}));
    for (std::int64_t i = 0; i < 5; ++i) {
      auto all = slice_elements(a, 1, i).to_vector<float>();
      const float first = largest(slice_elements(a, 1, i));
      for (const float v : slice_elements(b, 1, i).to_vector<float>()) all.push_back(v);
      expect_best(Tensor::from(all, {static_cast<std::int64_t>(all.size())}), first,
                  amax.to_vector<float>()[static_cast<std::size_t>(i)], options);
    }
  }
}

TEST(MseSearch, DefersTheChoiceOfSign) {
  Tensor x = heavy_tailed({900}, 5);
  auto* v = x.mutable_data<float>();
  for (std::int64_t i = 0; i < 900; ++i) v[i] = std::fabs(v[i]);
  MseSearchCalibrator waits({.num_bits = 4}), knows({.num_bits = 4, .is_unsigned = true});
  waits.collect(x);
  knows.collect(x);
  EXPECT_EQ(waits.compute_amax({.is_unsigned = true}).item(), knows.compute_amax().item());
  MseSearchCalibrator resumed({.num_bits = 4});
  resumed.load_state(waits.state_dict());
  EXPECT_EQ(resumed.compute_amax({.is_unsigned = true}).item(), knows.compute_amax().item());
  waits.collect(heavy_tailed({900}, 5));
  EXPECT_THAT([&] { (void)waits.compute_amax({.is_unsigned = true}); },
              ThrowsMessage<ArgumentError>(HasSubstr("a value was below 0")));
}

TEST(MseSearch, HandlesZerosOneValueAndHugeValues) {
  MseSearchCalibrator c({.axis = 0});
  c.collect(Tensor::from({0.0f, 0.0f, 5.0f, 5.0f, 3e38f, 3e38f}, {3, 2}));
  const auto zeros = c.compute_amax().to_vector<float>();
  EXPECT_EQ(zeros[0], 0);
  expect_best(Tensor::from({5.0f, 5.0f}), 5, zeros[1], {});
  EXPECT_EQ(zeros[2], 3e38f);
  c.collect(Tensor::from({1.0f, 2.0f, 5.0f, 5.0f, 3e38f, 3e38f}, {3, 2}));
  EXPECT_GT(c.compute_amax().to_vector<float>()[0], 0);
}

TEST(MseSearch, LongRowsAreInvariantToThreadCount) {
  const Tensor x = heavy_tailed({3, 100000}, 9);
  MseSearchCalibrator whole({.axis = 0}), again({.axis = 0});
  whole.collect(x);
  again.collect(x);
  EXPECT_TRUE(bitwise_equal(whole.state_dict(), again.state_dict()));
}

TEST(MseSearch, IsUnchangedAfterAnError) {
  MseSearchCalibrator c({.axis = 0});
  c.collect(heavy_tailed({4, 100}, 1));
  const StateDict before = c.state_dict();
  EXPECT_THROW(c.collect(Tensor::full({4, 100}, std::numeric_limits<double>::quiet_NaN())), NumericError);
  EXPECT_THROW(c.collect(heavy_tailed({5, 100}, 1)), ArgumentError);
  EXPECT_TRUE(bitwise_equal(c.state_dict(), before));
}

TEST(MseSearch, RejectsForeignSettingsAndStates) {
  EXPECT_THAT(
      [] {
        MseSearchCalibrator({.num_bits = {5, 2}});
      },
      ThrowsMessage<ArgumentError>(HasSubstr("use an integer format, (4, 3) or (2, 1)")));
  EXPECT_THROW(MseSearchCalibrator({.start_multiplier = 0}), ArgumentError);
  EXPECT_THROW(MseSearchCalibrator({.start_multiplier = 2, .stop_multiplier = 1}), ArgumentError);
  EXPECT_THROW(MseSearchCalibrator({.multiplier_step = 0}), ArgumentError);
  EXPECT_THROW(MseSearchCalibrator({.multiplier_step = 1e-4}), ArgumentError);
  EXPECT_EQ(MseSearchCalibrator({.start_multiplier = 1, .stop_multiplier = 1}).multiples().size(), 1u);
  MseSearchCalibrator c;
  c.collect(heavy_tailed({100}, 1));
  EXPECT_THROW(MseSearchCalibrator({.num_bits = 4}).load_state(c.state_dict()), ArgumentError);
  EXPECT_THROW(MseSearchCalibrator({.stop_multiplier = 2}).load_state(c.state_dict()), ArgumentError);
  StateDict bad = c.state_dict();
  bad.set("errors", Tensor::full({1, 39}, -1.0, DType::f64));
  EXPECT_THROW(c.load_state(bad), ArgumentError);
  bad.set("errors", Tensor::zeros({1, 38}, DType::f64));
  EXPECT_THROW(c.load_state(bad), ArgumentError);
}

}  // namespace
}  // namespace fq::mse_search_calibrator_test
