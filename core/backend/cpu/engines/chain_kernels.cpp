#include "fakequant/core/backend/cpu/engines/chain_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fakequant/core/backend/cpu/engines/chain_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "fakequant/core/backend/cpu/vector/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fq::HWY_NAMESPACE {

using cpu::BlockChains;
using SumTag = hn::RebindToSigned<FloatTag>;
using SumVector = hn::Vec<SumTag>;
using CodeTag = hn::Rebind<std::int16_t, FloatTag>;
using CodeVector = hn::Vec<CodeTag>;

HWY_INLINE SumVector added(SumVector sums, CodeVector products) {
  return hn::Add(sums, hn::PromoteTo(SumTag(), products));
}
/// One block more: fma(float(sums), x_scale * w_scale, chain).
HWY_INLINE FloatVector next(FloatVector chain, SumVector sums, float x_scale, const float* w_scale) {
  const FloatTag d;
  return fma_(hn::ConvertTo(d, sums), mul_(hn::Set(d, x_scale), hn::LoadU(d, w_scale)), chain);
}

/// The sum of `count` products, in 16 bits.
HWY_INLINE CodeVector products(const std::int16_t* x, const std::int16_t* w, std::int64_t width, int count) {
  const CodeTag d;
  CodeVector sum = hn::Zero(d);
  for (int k = 0; k < count; ++k) sum = hn::Add(sum, hn::Mul(hn::Set(d, x[k]), hn::LoadU(d, w + k * width)));
  return sum;
}

constexpr std::int64_t kChunk = 16;

template <int rows>
HWY_INLINE void chain_rows(const BlockChains& a, std::int64_t row, std::int64_t n) {
  const FloatTag d;
  const std::int64_t blocks = a.columns / a.block;
  FloatVector chains[rows];
  for (int r = 0; r < rows; ++r) chains[r] = hn::LoadU(d, a.y + (row + r) * a.width + n);
  for (std::int64_t b = 0; b < blocks; ++b) {
    SumVector sums[rows];
    for (int r = 0; r < rows; ++r) sums[r] = hn::Zero(SumTag());
    for (std::int64_t k = b * a.block; k < (b + 1) * a.block; k += kChunk)
      for (int r = 0; r < rows; ++r)
        sums[r] =
            added(sums[r], products(a.x + (row + r) * a.columns + k, a.w + k * a.width + n, a.width, kChunk));
    for (int r = 0; r < rows; ++r)
      chains[r] = next(chains[r], sums[r], a.x_scale != nullptr ? a.x_scale[(row + r) * blocks + b] : 1.0f,
                       a.w_scale + b * a.width + n);
  }
  for (int r = 0; r < rows; ++r) hn::StoreU(chains[r], d, a.y + (row + r) * a.width + n);
}

HWY_INLINE void lane_row(const BlockChains& a, std::int64_t row, std::int64_t n) {
  constexpr std::int64_t block = 32;
  const FloatTag d;
  const std::int64_t blocks = a.columns / block;
  FloatVector lanes[8];
  for (int l = 0; l < 8; ++l) lanes[l] = hn::Zero(d);
  for (std::int64_t b = 0; b < blocks; ++b)
    for (int l = 0; l < 8; ++l) {
      const std::int64_t k = b * block + 4 * l;
      const std::int16_t* x = a.x + row * a.columns + k;
      const std::int16_t* w = a.w + k * a.width + n;
      const SumVector pair = added(hn::Zero(SumTag()), products(x, w, a.width, 2));
      lanes[l] = next(lanes[l], added(pair, products(x + 2, w + 2 * a.width, a.width, 2)),
                      a.x_scale[row * blocks + b], a.w_scale + b * a.width + n);
    }
  const FloatVector a0 = add_(lanes[4], lanes[0]), a1 = add_(lanes[5], lanes[1]);
  const FloatVector a2 = add_(lanes[6], lanes[2]), a3 = add_(lanes[7], lanes[3]);
  hn::StoreU(add_(add_(a0, a2), add_(a1, a3)), d, a.y + row * a.width + n);
}

HWY_ATTR void ChainBlocks(const BlockChains& a, std::int64_t begin, std::int64_t end, std::int64_t output) {
  const auto step = static_cast<std::int64_t>(hn::Lanes(CodeTag()));
  for (std::int64_t n = output; n < output + cpu::chain_width; n += step) {
    std::int64_t row = begin;
    for (; row + 4 <= end; row += 4) chain_rows<4>(a, row, n);
    for (; row < end; ++row) chain_rows<1>(a, row, n);
  }
}
HWY_ATTR void ChainLanes(const BlockChains& a, std::int64_t begin, std::int64_t end, std::int64_t output) {
  const auto step = static_cast<std::int64_t>(hn::Lanes(CodeTag()));
  for (std::int64_t n = output; n < output + cpu::chain_width; n += step)
    for (std::int64_t row = begin; row < end; ++row) lane_row(a, row, n);
}

}  // namespace fq::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fq {
HWY_EXPORT(ChainBlocks);
HWY_EXPORT(ChainLanes);

namespace cpu {

void chain_blocks(const BlockChains& chains, std::int64_t begin, std::int64_t end, std::int64_t output) {
  HWY_DYNAMIC_DISPATCH(ChainBlocks)(chains, begin, end, output);
}
void chain_lanes(const BlockChains& chains, std::int64_t begin, std::int64_t end, std::int64_t output) {
  HWY_DYNAMIC_DISPATCH(ChainLanes)(chains, begin, end, output);
}

}  // namespace cpu
}  // namespace fq
#endif
