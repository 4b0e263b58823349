/// The vector loops over ranges against the formulas of one range.

#include <cmath>

#include <gtest/gtest.h>

#include "core/products.h"
#include "fakequant/core/backend/cpu/codes/gradient_kernels.h"
#include "fakequant/core/backend/cpu/codes/quantize_kernels.h"
#include "fakequant/core/numerics/detail/grid_formulas.h"
#include "vector_patterns.h"

namespace fq::range_numbers_test {
namespace {

using detail::GridRow;
using detail::ScaleRule;

std::vector<ScaleRule> rules() {
  using Kind = ScaleRule::Kind;
  return {{Kind::exact, 127, detail::least_amax},       {Kind::exact, 448, 1.0f},
          {Kind::raised, 7, detail::least_amax},        {Kind::raised, 6, 1.0f},
          {Kind::e4m3, 6, detail::least_amax, 0.0003f}, {Kind::e4m3, 448, detail::least_amax, 1.0f},
          {Kind::e8m0, 6, detail::least_amax},          {Kind::e8m0, 7, detail::least_amax}};
}

TEST(RangeScales, MatchTheScalarOnEveryTarget) {
  auto ranges = patterns();
  std::erase_if(ranges, [](float v) { return !detail::is_range(v); });
  for (const auto& rule : rules())
    for (const std::size_t count : {std::size_t{1}, std::size_t{13}, ranges.size()})
      run_on_every_target([&](std::int64_t target) {
        std::vector<float> amax(ranges.begin(), ranges.begin() + static_cast<std::ptrdiff_t>(count)),
            scale(count);
        ASSERT_TRUE(cpu::range_scales(rule, amax.data(), static_cast<std::int64_t>(count), scale.data()));
        for (std::size_t i = 0; i < count; ++i) {
          const auto expected = detail::range_and_scale(rule, ranges[i]);
          ASSERT_EQ(amax[i], expected.amax) << ranges[i] << " on " << target;
          ASSERT_EQ(scale[i], expected.scale) << ranges[i] << " on " << target;
        }
      });
}

TEST(RangeScales, DetectInvalidRanges) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const auto& rule : rules())
    for (const float bad : {-1.0f, -0x1p-149f, inf, std::numeric_limits<float>::quiet_NaN()})
      for (const std::size_t at : {std::size_t{0}, std::size_t{15}, std::size_t{36}})
        run_on_every_target([&](std::int64_t) {
          std::vector<float> amax(37, 0.7f), scale(37);
          amax[at] = bad;
          EXPECT_FALSE(cpu::range_scales(rule, amax.data(), 37, scale.data()));
          EXPECT_TRUE(same_number(amax[at], bad));
        });
}

/// Sums of sixteen lanes, then of the lanes in order: the same on every target.
template <class Share>
double expected_sum(const std::vector<float>& x, const std::vector<float>& dy, const Share& share) {
  double lanes[16] = {}, sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    lanes[i % 16] += static_cast<double>(dy[i]) * static_cast<double>(share(i));
  for (const double lane : lanes) sum += lane;
  return sum;
}

TEST(RangeShares, MatchTheScalarOnEveryTarget) {
  for (const std::int64_t count : {1, 15, 16, 17, 1000, 4099}) {
    const auto x = test::uniform({count}, 1).to_vector<float>(),
               dy = test::uniform({count}, 2).to_vector<float>();
    for (const bool is_unsigned : {false, true}) {
      const float amax = 0.4f, scale = amax / 127;
      const GridRow row{scale, is_unsigned ? 0.0f : -127.0f, 127, amax, is_unsigned ? 0.0f : -amax};
      std::vector<float> q;
      for (const float v : x) q.push_back(scalar::quantize_code(v, scale, row.lower, row.upper));
      const double clip = expected_sum(x, dy, [&](std::size_t i) { return detail::clip_share(x[i], row); });
      const double lsq =
          expected_sum(x, dy, [&](std::size_t i) { return detail::lsq_share(x[i], q[i], row); });
      EXPECT_NE(lsq, 0);
      run_on_every_target([&](std::int64_t target) {
        EXPECT_EQ(cpu::clip_sum(x.data(), dy.data(), count, row), clip) << count << " on " << target;
        EXPECT_EQ(cpu::lsq_sum(x.data(), q.data(), dy.data(), count, row), lsq) << count << " on " << target;
      });
    }
  }
}

TEST(RangeShares, AreCorrectAtTheRangeEnds) {
  const GridRow row{0.5f, -8, 7, 1.0f, -1.0f};
  EXPECT_EQ(detail::clip_share(1.0f, row), 1);
  EXPECT_EQ(detail::clip_share(-1.0f, row), -1);
  EXPECT_EQ(detail::clip_share(0.999f, row), 0);
  EXPECT_EQ(detail::clip_share(-1.0f, {0.5f, 0, 15, 1.0f, 0.0f}), 0);
  EXPECT_EQ(detail::lsq_share(1.0f, 2, row), 0);
  EXPECT_EQ(detail::lsq_share(1.5f, 2, row), 2);
}

}  // namespace
}  // namespace fq::range_numbers_test
