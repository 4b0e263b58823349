#include "fakequant/calib/cpu/entropy_kernels.h"

#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fakequant/calib/cpu/entropy_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
//
#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace fq::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using Doubles = hn::CappedTag<double, 8>;  // the fewest levels
using Integers = hn::RebindToSigned<Doubles>;

/// sums[to] - sums[from].
HWY_ATTR hn::Vec<Doubles> between(const double* sums, hn::Vec<Integers> from, hn::Vec<Integers> to) {
  const Doubles d;
  return hn::Sub(hn::GatherIndex(d, sums, to), hn::GatherIndex(d, sums, from));
}

double LevelEntropy(const cpu::EntropySums& sums, std::size_t bins, int levels_log2) {
  const Doubles d;
  const Integers di;
  const auto width = static_cast<std::int64_t>(bins), levels = std::int64_t{1} << levels_log2;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  HWY_ALIGN std::int64_t first[8];
  for (std::int64_t k = 0; k < 8; ++k) first[k] = (k + 1) * width + levels - 1;
  const auto one = hn::Set(d, 1.0);
  const auto step = hn::Set(di, lanes * width), back = hn::Set(di, width);
  auto end = hn::Load(di, first);
  auto sum = hn::Zero(d);
  for (std::int64_t level = 0; level < levels; level += lanes, end = hn::Add(end, step)) {
    const auto to = hn::ShiftRightSame(end, levels_log2),
               from = hn::ShiftRightSame(hn::Sub(end, back), levels_log2);
    const auto count = between(sums.counts, from, to), filled = between(sums.filled, from, to);
    const auto mean = hn::Max(hn::Div(count, hn::Max(filled, one)), one);
    sum = hn::Add(sum, hn::Mul(count, hn::Log(d, mean)));
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
