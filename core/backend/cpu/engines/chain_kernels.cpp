#include "fakequant/core/backend/cpu/engines/chain_kernels.h"

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fakequant/core/backend/cpu/engines/chain_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "fakequant/core/backend/cpu/vector/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fq::HWY_NAMESPACE {

using cpu::BlockChains;
using cpu::LaneChains;
using SumTag = hn::RebindToSigned<FloatTag>;
using SumVector = hn::Vec<SumTag>;

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE SumVector word_pairs(const std::int16_t* x, const std::int16_t* w) {
  return hn::Set(SumTag(), x[0] * w[0] + x[1] * w[1]);
}

template <int rows>
HWY_INLINE void add_columns(const BlockChains& a, std::int64_t row, std::int64_t n, std::int64_t begin,
                            std::int64_t columns, SumVector* sums) {
  for (int r = 0; r < rows; ++r) {
    std::int32_t sum = 0;
    for (std::int64_t k = begin; k < begin + columns; ++k)
      sum += a.x[(row + r) * a.columns + k] * a.w[k / 4 * 4 * cpu::chain_width + 4 * n + k % 4];
    sums[r] = hn::Add(sums[r], hn::Set(SumTag(), sum));
  }
}
#else
using PairTag = hn::Repartition<std::int16_t, FloatTag>;
using PairVector = hn::Vec<PairTag>;
using ByteTag = hn::Repartition<std::uint8_t, FloatTag>;
using CodeTag = hn::Repartition<std::int8_t, FloatTag>;

/// Of two words side by side that share a lane of 32 bits.
HWY_INLINE SumVector low(PairVector words) {
  return hn::ShiftRight<16>(hn::ShiftLeft<16>(hn::BitCast(SumTag(), words)));
}
HWY_INLINE SumVector high(PairVector words) { return hn::ShiftRight<16>(hn::BitCast(SumTag(), words)); }

/// a[2i] * b[2i] + a[2i + 1] * b[2i + 1], which must fit: of bytes, and of words.
HWY_INLINE PairVector pair_sums(hn::Vec<ByteTag> a, hn::Vec<CodeTag> b) {
#if HWY_TARGET <= HWY_AVX3
  return PairVector{_mm512_maddubs_epi16(a.raw, b.raw)};
#elif HWY_TARGET == HWY_AVX2
  return PairVector{_mm256_maddubs_epi16(a.raw, b.raw)};
#else
  const PairTag d;
  const PairVector left = hn::BitCast(d, a), right = hn::BitCast(d, b), byte = hn::Set(d, 0xff);
  const PairVector even = hn::Mul(hn::And(left, byte), hn::ShiftRight<8>(hn::ShiftLeft<8>(right)));
  return hn::Add(even, hn::Mul(hn::And(hn::ShiftRight<8>(left), byte), hn::ShiftRight<8>(right)));
#endif
}
HWY_INLINE SumVector pair_sums(PairVector a, PairVector b) {
#if HWY_TARGET <= HWY_AVX3
  return SumVector{_mm512_madd_epi16(a.raw, b.raw)};
#elif HWY_TARGET == HWY_AVX2
  return SumVector{_mm256_madd_epi16(a.raw, b.raw)};
#else
  return hn::Add(hn::Mul(low(a), low(b)), hn::Mul(high(a), high(b)));
#endif
}

/// The 32 bits there, in every lane.
HWY_INLINE SumVector repeated(const void* from) {
  std::int32_t bits;
  std::memcpy(&bits, from, sizeof bits);
  return hn::Set(SumTag(), bits);
}

HWY_INLINE SumVector word_pairs(const std::int16_t* x, const std::int16_t* w) {
  return pair_sums(hn::BitCast(PairTag(), repeated(x)), hn::LoadU(PairTag(), w));
}

/// Adds products of at most 32 columns, whose sums of pairs fit 16 bits.
template <int rows>
HWY_INLINE void add_columns(const BlockChains& a, std::int64_t row, std::int64_t n, std::int64_t begin,
                            std::int64_t columns, SumVector* sums) {
  PairVector pairs[rows];
  for (int r = 0; r < rows; ++r) pairs[r] = hn::Zero(PairTag());
  for (std::int64_t k = begin; k < begin + columns; k += 4) {
    const auto w = hn::LoadU(CodeTag(), a.w + k * cpu::chain_width + 4 * n);
    for (int r = 0; r < rows; ++r) {
      const auto x = hn::BitCast(ByteTag(), repeated(a.x + (row + r) * a.columns + k));
      pairs[r] = hn::Add(pairs[r], pair_sums(x, w));
    }
  }
  for (int r = 0; r < rows; ++r) sums[r] = hn::Add(sums[r], hn::Add(low(pairs[r]), high(pairs[r])));
}
#endif

/// One block more: fma(float(sums), x_scale * w_scale, chain).
HWY_INLINE FloatVector next(FloatVector chain, SumVector sums, float x_scale, const float* w_scale) {
  const FloatTag d;
  return fma_(hn::ConvertTo(d, sums), mul_(hn::Set(d, x_scale), hn::LoadU(d, w_scale)), chain);
}

template <int rows>
HWY_INLINE void chain_rows(const BlockChains& a, std::int64_t row, std::int64_t n) {
  const FloatTag d;
  const SumTag whole;
  const std::int64_t blocks = a.columns / a.block, step = a.block % 32 == 0 ? 32 : 16;
  FloatVector chains[rows];
  for (int r = 0; r < rows; ++r) chains[r] = hn::LoadU(d, a.y + (row + r) * a.pitch + n);
  for (std::int64_t b = 0; b < blocks; ++b) {
    const SumVector first = a.subtract == nullptr
                                ? hn::Zero(whole)
                                : hn::Neg(hn::LoadU(whole, a.subtract + b * cpu::chain_width + n));
    SumVector sums[rows];
    for (int r = 0; r < rows; ++r) sums[r] = first;
    for (std::int64_t k = b * a.block; k < (b + 1) * a.block; k += step)
      add_columns<rows>(a, row, n, k, step, sums);
    for (int r = 0; r < rows; ++r)
      chains[r] = next(chains[r], sums[r], a.x_scale != nullptr ? a.x_scale[(row + r) * blocks + b] : 1.0f,
                       a.w_scale + b * cpu::chain_width + n);
  }
  for (int r = 0; r < rows; ++r) hn::StoreU(chains[r], d, a.y + (row + r) * a.pitch + n);
}

HWY_INLINE void lane_row(const LaneChains& a, std::int64_t row, std::int64_t n) {
  constexpr std::int64_t block = cpu::lane_block;
  const FloatTag d;
  const std::int64_t blocks = a.columns / block;
  FloatVector lanes[8];
  for (int l = 0; l < 8; ++l) lanes[l] = hn::Zero(d);
  for (std::int64_t b = 0; b < blocks; ++b)
    for (int l = 0; l < 8; ++l) {
      const std::int64_t k = b * block + 4 * l;
      const std::int16_t *x = a.x + row * a.columns + k, *w = a.w + k * cpu::chain_width + 2 * n;
      const SumVector sum = hn::Add(word_pairs(x, w), word_pairs(x + 2, w + 2 * cpu::chain_width));
      lanes[l] = next(lanes[l], sum, a.x_scale[row * blocks + b], a.w_scale + b * cpu::chain_width + n);
    }
  const FloatVector a0 = add_(lanes[4], lanes[0]), a1 = add_(lanes[5], lanes[1]);
  const FloatVector a2 = add_(lanes[6], lanes[2]), a3 = add_(lanes[7], lanes[3]);
  hn::StoreU(add_(add_(a0, a2), add_(a1, a3)), d, a.y + row * a.pitch + n);
}

HWY_ATTR void ChainBlocks(const BlockChains& a, std::int64_t begin, std::int64_t end) {
  const auto step = static_cast<std::int64_t>(hn::Lanes(FloatTag()));
  for (std::int64_t n = 0; n < cpu::chain_width; n += step) {
    std::int64_t row = begin;
    for (; row + 4 <= end; row += 4) chain_rows<4>(a, row, n);
    for (; row < end; ++row) chain_rows<1>(a, row, n);
  }
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
HWY_EXPORT(ChainBlocks);
HWY_EXPORT(ChainLanes);

namespace cpu {

void chain_blocks(const BlockChains& strip, std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(ChainBlocks)(strip, begin, end);
}
void chain_lanes(const LaneChains& strip, std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(ChainLanes)(strip, begin, end);
}

}  // namespace cpu
}  // namespace fq
#endif
