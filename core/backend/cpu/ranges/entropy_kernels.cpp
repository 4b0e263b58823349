#include <algorithm>

#include "fakequant/core/backend/cpu/ranges/search_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fakequant/core/backend/cpu/ranges/entropy_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
//
#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace fq::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using Doubles = hn::CappedTag<double, 8>;  // 8 lanes: the minimum number of levels

constexpr std::size_t kLevels = 64;  // levels per step

/// Sums at the edges of up to kLevels levels, including the lower edge of the first level.
struct Edges {
  double counts[kLevels + 1] = {}, filled[kLevels + 1] = {};
};

HWY_ATTR hn::Vec<Doubles> within(const double* at_edges, std::size_t level) {
  const Doubles d;
  return hn::Sub(hn::LoadU(d, at_edges + level + 1), hn::LoadU(d, at_edges + level));
}

// Quantizing a histogram spreads the count of a level evenly over its non-empty bins. The divergence of both
// needs one term per level, count * log(count / filled), which prefix sums give without a loop over bins.
double LevelEntropy(const cpu::EntropySums& sums, std::size_t bins, int levels_log2) {
  const Doubles d;
  const std::size_t levels = std::size_t{1} << levels_log2;
  const auto one = hn::Set(d, 1.0);
  auto sum = hn::Zero(d);
  Edges edges;
  // Level d ends at ceil((d + 1) * bins / levels) = (levels - 1 + (d + 1) * bins) >> levels_log2.
  std::size_t end = levels - 1;
  for (std::size_t level = 0; level < levels; level += kLevels) {
    const std::size_t count = std::min(kLevels, levels - level);
    for (std::size_t k = 1; k <= count; ++k) {
      end += bins;
      edges.counts[k] = sums.counts[end >> levels_log2];
      edges.filled[k] = sums.filled[end >> levels_log2];
    }
    for (std::size_t k = 0; k < count; k += hn::Lanes(d)) {
      const auto here = within(edges.counts, k), filled = within(edges.filled, k);
      // Empty levels: 0 / 1, and log(1) = 0.
      const auto mean = hn::Max(hn::Div(here, hn::Max(filled, one)), one);
      sum = hn::Add(sum, hn::Mul(here, hn::Log(d, mean)));
    }
    edges.counts[0] = edges.counts[count];
    edges.filled[0] = edges.filled[count];
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

}  // namespace
}  // namespace fq::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fq {
HWY_EXPORT(LevelEntropy);

namespace cpu {

double level_entropy(const EntropySums& sums, std::size_t bins, int levels_log2) {
  return HWY_DYNAMIC_DISPATCH(LevelEntropy)(sums, bins, levels_log2);
}

}  // namespace cpu
}  // namespace fq
#endif
