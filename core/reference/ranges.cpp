#include "fakequant/core/reference/ranges.h"

#include <array>
#include <limits>

#include "fakequant/core/check.h"
#include "fakequant/core/formulas.h"
#include "fakequant/core/reference/float_blocks.h"

namespace fq::detail {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr std::int64_t lanes = 16;

/// Smallest, largest and whether there is a NaN, in as many lanes as vectors like.
struct Running {
  std::array<float, lanes> lower, upper;
  std::array<std::uint32_t, lanes> nan{};

  Running() {
    lower.fill(infinity);
    upper.fill(-infinity);
  }
  void add(std::size_t lane, float v) {
    lower[lane] = scalar::min_(v, lower[lane]);
    upper[lane] = scalar::max_(v, upper[lane]);
    nan[lane] |= static_cast<std::uint32_t>(scalar::is_nan_(v));
  }
  void add(const float* v, std::int64_t count) {
    std::int64_t i = 0;
    for (; i + lanes <= count; i += lanes)
      for (std::size_t lane = 0; lane < lanes; ++lane) add(lane, v[i + static_cast<std::int64_t>(lane)]);
    for (; i < count; ++i) add(0, v[i]);
  }
};

/// A NaN that is there already stays.
void merge(float& lower, float& upper, float least, float most) {
  lower = scalar::is_nan_(lower) ? lower : scalar::is_nan_(least) ? least : scalar::min_(least, lower);
  upper = scalar::is_nan_(upper) ? upper : scalar::is_nan_(most) ? most : scalar::max_(most, upper);
}

std::int64_t count_blocks(const Shape& shape, const Shape& block) {
  std::int64_t count = 1;
  for (std::size_t a = 0; a < shape.size(); ++a) count *= (shape[a] + block[a] - 1) / block[a];
  return count;
}

}  // namespace

Ranges block_ranges(const Tensor& x, const Shape& block, const char* function) {
  FQ_CHECK(x.numel() > 0, function, "the input {} has no element to take a range from", to_string(x.shape()));
  const auto count = static_cast<std::size_t>(count_blocks(x.shape(), block));
  Ranges out{std::vector<float>(count, infinity), std::vector<float>(count, -infinity)};
  for_chunks(x.to(Layout::row_major), block, [&](const float* v, auto, auto length, auto j, auto step) {
    float *lower = out.lower.data() + j, *upper = out.upper.data() + j;
    if (step != 0) {
      for (std::int64_t k = 0; k < length; ++k) merge(lower[k], upper[k], v[k], v[k]);
      return;
    }
    Running running;
    running.add(v, length);
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      const float nan = std::numeric_limits<float>::quiet_NaN();
      const bool broken = running.nan[lane] != 0;
      merge(*lower, *upper, broken ? nan : running.lower[lane], broken ? nan : running.upper[lane]);
    }
  });
  return out;
}

}  // namespace fq::detail
