#include "fakequant/calib/detail/scale_sweep_calibrator.h"

#include <algorithm>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "calib/random_tensors.h"
#include "fakequant/core/error.h"
#include "fakequant/core/io/state_dict.h"
#include "fakequant/core/numerics/detail/minifloat.h"
#include "fakequant/core/quantized.h"

namespace fq::scale_sweep_calibrator_test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

Grid make_grid(const Tensor& amax, const Format& format) {
  const auto ranges = amax.to_vector<float>();
  return Grid::block_scaled(format, Granularity::per_axis(0),
                            amax.reshape({static_cast<std::int64_t>(ranges.size())}), NumBits(4, 3),
                            *std::ranges::max_element(ranges));
}

double total_error(const Tensor& x, float scale, const Format& format) {
  Grid grid;
  grid.format = format;
  grid.amax = Tensor::scalar(static_cast<double>(scale * format.bound()));
  grid.scale = Tensor::scalar(static_cast<double>(scale));
  const auto y = dequantize(quantize(x, grid, false)).to_vector<float>(), v = x.to_vector<float>();
  double sum = 0;
  for (std::size_t i = 0; i < v.size(); ++i)
    sum += (static_cast<double>(y[i]) - static_cast<double>(v[i])) *
           (static_cast<double>(y[i]) - static_cast<double>(v[i]));
  return sum;
}

Tensor calibrated_amax(const Tensor& x, const CalibratorOptions& options) {
  ScaleSweepCalibrator c(options);
  c.collect(x);
  return c.compute_amax();
}

TEST(ScaleSweep, ChoosesTheBestOf126ScalesForEachBlock) {
  const auto e4m3 = Minifloat::of({4, 3});
  for (unsigned seed = 0; seed < 8; ++seed) {
    const Format format = seed % 2 == 0 ? Format(FloatFormat{2, 1}) : Format(IntFormat{4});
    const Tensor x = heavy_tailed({40, 16}, seed);
    const Tensor amax =
        calibrated_amax(x, {.axis = 0, .num_bits = seed % 2 == 0 ? NumBits(2, 1) : NumBits(4)});
    const Grid grid = make_grid(amax, format);
    float largest = 0;
    for (const float v : x.to_vector<float>()) largest = std::max(largest, std::fabs(v));
    EXPECT_EQ(grid.unit, largest / (448 * format.bound()));
    for (std::int64_t r = 0; r < 40; ++r) {
      const Tensor row = x.slice(r, r + 1);
      const float scale = grid.scale.to_vector<float>()[static_cast<std::size_t>(r)];
      const bool keeps = amax.to_vector<float>()[static_cast<std::size_t>(r)] == largest;
      double least = std::numeric_limits<double>::infinity();
      for (int code = 1; code <= 126; ++code)
        least = std::min(least,
                         total_error(row, e4m3.decode(static_cast<std::uint8_t>(code)) * grid.unit, format));
      // The quantizer multiplies by s where the sweep divides by 1 / s: a rounding of a step of the codes.
      if (keeps) continue;
      EXPECT_LE(total_error(row, scale, format), least * 1.00001 + 1e-30) << seed << ", row " << r;
    }
  }
}

TEST(ScaleSweep, RecoversEveryScale) {
  const auto e4m3 = Minifloat::of({4, 3});
  const Format format = FloatFormat{2, 1};
  for (unsigned seed = 0; seed < 100; ++seed) {
    const float global = std::ldexp(1.0f + static_cast<float>(seed) / 101, static_cast<int>(seed % 21) - 10);
    const float unit = make_grid(Tensor::from({global}), format).unit;
    for (int code = 1; code <= 126; ++code) {
      const float scale = e4m3.decode(static_cast<std::uint8_t>(code)) * unit;
      const Grid grid = make_grid(Tensor::from({global, std::min(scale * 6, global)}), format);
      EXPECT_EQ(grid.scale.to_vector<float>()[1], scale) << global << ", code " << code;
    }
  }
}

TEST(ScaleSweep, HandlesZerosAndOneValue) {
  EXPECT_EQ(calibrated_amax(Tensor::zeros({3, 4}), {.axis = 0, .num_bits = {2, 1}}).to_vector<float>(),
            (std::vector<float>{0, 0, 0}));
  EXPECT_EQ(calibrated_amax(Tensor::full({2, 4}, -2.5), {.axis = 0, .num_bits = {2, 1}}).to_vector<float>(),
            (std::vector<float>{2.5f, 2.5f}));
}

TEST(ScaleSweep, RejectsInvalidInput) {
  ScaleSweepCalibrator c({.axis = 0, .num_bits = {2, 1}});
  const Tensor x = heavy_tailed({4, 16}, 1);
  EXPECT_THROW(c.collect(Tensor::full({4, 16}, std::numeric_limits<double>::quiet_NaN())), NumericError);
  EXPECT_TRUE(c.empty());
  c.collect(x);
  const StateDict before = c.state_dict();
  EXPECT_THAT([&] { c.collect(x); }, ThrowsMessage<ArgumentError>(HasSubstr("scale_sweep is for weights")));
  EXPECT_TRUE(bitwise_equal(c.state_dict(), before));
  ScaleSweepCalibrator loaded({.axis = 0, .num_bits = {2, 1}});
  loaded.load_state(before);
  EXPECT_TRUE(bitwise_equal(loaded.compute_amax(), c.compute_amax()));
  c.reset();
  c.collect(x);
  EXPECT_THROW(ScaleSweepCalibrator({.num_bits = {5, 2}}), ArgumentError);
}

}  // namespace
}  // namespace fq::scale_sweep_calibrator_test
