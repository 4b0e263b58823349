#include "fakequant/core/backend/cpu/engines/chain_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fakequant/core/backend/cpu/engines/lane_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "fakequant/core/backend/cpu/engines/chain_sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fq::HWY_NAMESPACE {

using cpu::LaneChains;

/// Computes one row of a vector of outputs.
HWY_INLINE void lane_row(const LaneChains& a, std::int64_t row, std::int64_t n) {
  constexpr std::int64_t block = cpu::lane_block;
  const FloatTag d;
  const std::int64_t blocks = a.columns / block;
  FloatVector lanes[8];
  for (int l = 0; l < 8; ++l) lanes[l] = hn::Zero(d);
  for (std::int64_t b = 0; b < blocks; ++b)
    for (int l = 0; l < 8; ++l) {
      const std::int64_t k = b * block + 4 * l;
      // Four products per lane, in two pairs.
      const std::int16_t *x = a.x + row * a.columns + k, *w = a.w + k * cpu::chain_width + 2 * n;
      const SumVector sum = hn::Add(word_pairs(x, w), word_pairs(x + 2, w + 2 * cpu::chain_width));
      lanes[l] =
          next(lanes[l], sum, hn::Set(d, a.x_scale[row * blocks + b]), a.w_scale + b * cpu::chain_width + n);
    }
  // ggml's kernels add in this order, which determines the bits.
  const FloatVector a0 = add_(lanes[4], lanes[0]), a1 = add_(lanes[5], lanes[1]);
  const FloatVector a2 = add_(lanes[6], lanes[2]), a3 = add_(lanes[7], lanes[3]);
  FloatVector y = add_(add_(a0, a2), add_(a1, a3));
  if (a.bias != nullptr) y = add_(y, hn::LoadU(d, a.bias + n));
  hn::StoreU(y, d, a.y + row * a.pitch + n);
}

HWY_ATTR void ChainLanes(const LaneChains& a, std::int64_t begin, std::int64_t end) {
  const auto step = static_cast<std::int64_t>(hn::Lanes(FloatTag()));
  for (std::int64_t n = 0; n < cpu::chain_width; n += step)
    for (std::int64_t row = begin; row < end; ++row) lane_row(a, row, n);
}

}  // namespace fq::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fq {
HWY_EXPORT(ChainLanes);

void cpu::chain_lanes(const LaneChains& strip, std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(ChainLanes)(strip, begin, end);
}

}  // namespace fq
#endif
