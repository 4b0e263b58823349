#include "fakequant/calib/detail/lsq_calibrator.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "calib/random_tensors.h"
#include "fakequant/core/error.h"
#include "fakequant/core/io/state_dict.h"

namespace fq::lsq_calibrator_test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

double mean_magnitude(const Tensor& x, bool skip_zeros) {
  double sum = 0, count = 0;
  for (const float v : x.to_vector<float>()) {
    sum += std::fabs(static_cast<double>(v));
    count += skip_zeros && v == 0 ? 0 : 1;
  }
  return sum / count;
}

TEST(LsqCalibrator, FollowsTheFormula) {
  for (unsigned seed = 0; seed < 5; ++seed)
    for (const int bits : {2, 4, 8, 16})
      for (const bool flag : {false, true}) {
        LsqCalibrator c({}, flag);
        const Tensor x = heavy_tailed({7, 1500}, seed);
        c.collect(x.slice(0, 3));
        c.collect(x.slice(3, 7));
        const double bound = std::ldexp(1.0, bits - (flag ? 0 : 1)) - 1;
        const double scale = 2 * mean_magnitude(x, flag) / std::sqrt(bound);
        // Sums of doubles in another order: far below the rounding to f32.
        EXPECT_FLOAT_EQ(static_cast<float>(c.compute_amax({.num_bits = bits, .is_unsigned = flag}).item()),
                        static_cast<float>(scale * bound));
      }
}

TEST(LsqCalibrator, CalibratesAlongAxes) {
  const Tensor x = heavy_tailed({5, 6, 40}, 4);
  LsqCalibrator c(1);
  c.collect(x);
  const Tensor amax = c.compute_amax();
  ASSERT_EQ(amax.shape(), (Shape{1, 6, 1}));
  for (std::int64_t i = 0; i < 6; ++i)
    EXPECT_FLOAT_EQ(
        amax.to_vector<float>()[static_cast<std::size_t>(i)],
        static_cast<float>(2 * mean_magnitude(slice_elements(x, 1, i), false) * std::sqrt(127.0)));
}

TEST(LsqCalibrator, Merges) {
  LsqCalibrator a(0), b(0), whole(0);
  for (LsqCalibrator* c : {&a, &whole}) c->collect(heavy_tailed({5, 40}, 1));
  for (LsqCalibrator* c : {&b, &whole}) c->collect(heavy_tailed({5, 40}, 2));
  a.merge(b);
  EXPECT_TRUE(bitwise_equal(a.state_dict(), whole.state_dict()));
  LsqCalibrator tensor, wider(0);
  wider.collect(heavy_tailed({6, 40}, 2));
  EXPECT_THROW(a.merge(tensor), ArgumentError);
  EXPECT_THROW(a.merge(wider), ArgumentError);
}

TEST(LsqCalibrator, HandlesZerosAndHugeValues) {
  LsqCalibrator c({}, true);
  c.collect(Tensor::zeros({10}));
  EXPECT_EQ(c.compute_amax().item(), 0);
  c.collect(Tensor::full({10}, 3e38));
  EXPECT_EQ(c.compute_amax().item(), static_cast<double>(std::numeric_limits<float>::max()));
}

TEST(LsqCalibrator, IsUnchangedAfterAnError) {
  LsqCalibrator c(0);
  c.collect(heavy_tailed({4, 100}, 1));
  const StateDict before = c.state_dict();
  EXPECT_THROW(c.collect(Tensor::full({4, 100}, std::numeric_limits<double>::infinity())), NumericError);
  EXPECT_THROW(c.collect(heavy_tailed({5, 100}, 1)), ArgumentError);
  EXPECT_THAT(
      [&] {
        (void)c.compute_amax({.num_bits = {4, 3}});
      },
      ThrowsMessage<ArgumentError>(HasSubstr("is a float format")));
  StateDict bad = c.state_dict();
  bad.set("sums", Tensor::full({4}, -1.0, DType::f64));
  EXPECT_THROW(c.load_state(bad), ArgumentError);
  EXPECT_TRUE(bitwise_equal(c.state_dict(), before));
}

}  // namespace
}  // namespace fq::lsq_calibrator_test
