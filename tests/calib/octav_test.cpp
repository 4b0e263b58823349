#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "calib/random_tensors.h"
#include "fakequant/calib/histogram.h"
#include "fakequant/core/error.h"

namespace fq::octav_test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

/// The error that OCTAV makes smallest, by its definition.
double octav_error(const std::vector<float>& x, double s, double noise) {
  double sum = 0;
  for (const float v : x) {
    const double m = std::fabs(static_cast<double>(v));
    sum += m > s ? (m - s) * (m - s) : m > 0 ? noise * s * s : 0;
  }
  return sum;
}

TEST(Octav, MinimizesItsError) {
  for (unsigned seed = 0; seed < 12; ++seed)
    for (const int bits : {2, 3, 4, 8, 16})
      for (const bool is_unsigned : {false, true}) {
        const Tensor x = heavy_tailed({3000}, seed);
        const auto v = x.to_vector<float>();
        const double noise = std::pow(4.0, -bits) / (is_unsigned ? 12 : 3);
        const double amax = octav_amax(x, {}, bits, is_unsigned).item(), least = octav_error(v, amax, noise);
        double largest = 0;
        for (const float m : v) largest = std::max(largest, std::fabs(static_cast<double>(m)));
        ASSERT_LE(amax, largest);
        // The error steps at every |x|, so Newton ends within a few of them of the best.
        for (int k = 1; k <= 200; ++k)
          EXPECT_LE(least, 1.02 * octav_error(v, largest * k / 200, noise))
              << seed << ", " << bits << " bits";
      }
}

TEST(Octav, MatchesEachSliceAlongAxes) {
  const Tensor x = heavy_tailed({6, 5, 70}, 7);
  for (int axis = 0; axis < 2; ++axis) {
    const auto amax = octav_amax(x, axis, 4, false);
    ASSERT_EQ(amax.numel(), x.dim(axis));
    for (std::int64_t i = 0; i < amax.numel(); ++i)
      EXPECT_EQ(amax.to_vector<float>()[static_cast<std::size_t>(i)],
                octav_amax(slice_elements(x, axis, i), {}, 4, false).item());
  }
}

TEST(Octav, MatchesAHistogramWithinOneBin) {
  for (unsigned seed = 0; seed < 6; ++seed)
    for (const int bits : {3, 4, 8}) {
      const Tensor x = heavy_tailed({20000}, seed);
      HistogramCalibrator histogram("octav", {.skip_zeros = true});
      histogram.collect(x);
      const double amax = histogram.compute_amax({.num_bits = bits}).item(), noise = std::pow(4.0, -bits) / 3;
      // A histogram replaces values by bin centres: the clips differ, their errors hardly do.
      EXPECT_LE(octav_error(x.to_vector<float>(), amax, noise),
                1.01 * octav_error(x.to_vector<float>(), octav_amax(x, {}, bits, false).item(), noise));
    }
}

TEST(Octav, HandlesOneValueAndZeros) {
  EXPECT_EQ(octav_amax(Tensor::zeros({9}), {}, 8, false).item(), 0);
  EXPECT_FLOAT_EQ(static_cast<float>(octav_amax(Tensor::full({9}, -3.0), {}, 8, false).item()), 3);
  EXPECT_EQ(amax_by_octav({}, 8, false), 0);
}

TEST(Octav, RejectsInvalidInput) {
  const Tensor x = heavy_tailed({10}, 1);
  EXPECT_THAT(
      [&] {
        (void)octav_amax(x, {}, {4, 3}, false);
      },
      ThrowsMessage<ArgumentError>(HasSubstr("is a float format")));
  EXPECT_THROW((void)octav_amax(x, {}, 1, false), ArgumentError);
  EXPECT_THROW((void)octav_amax(x, {}, 17, false), ArgumentError);
  EXPECT_THROW((void)octav_amax(Tensor::zeros({0}), {}, 8, false), ArgumentError);
  EXPECT_THROW((void)octav_amax(Tensor::from({std::numeric_limits<float>::infinity()}), {}, 8, false),
               NumericError);
  EXPECT_THROW((void)amax_by_octav({.counts = {1, 2}, .edges = {0, 1}}, 8, false), ArgumentError);
}

}  // namespace
}  // namespace fq::octav_test
