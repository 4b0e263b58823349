// Sums of products of codes as vectors of 32-bit integers. Include in a source that uses foreach_target.h;
// not a public header. Included once for each target, hence no pragma once.

#if defined(FQ_CHAIN_SUMS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef FQ_CHAIN_SUMS_INL_H
#undef FQ_CHAIN_SUMS_INL_H
#else
#define FQ_CHAIN_SUMS_INL_H
#endif

#include <cstdint>
#include <cstring>

#include "fakequant/core/backend/cpu/engines/chain_kernels.h"
#include "fakequant/core/backend/cpu/vector/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fq::HWY_NAMESPACE {

using SumTag = hn::RebindToSigned<FloatTag>;
using SumVector = hn::Vec<SumTag>;

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE SumVector word_pairs(const std::int16_t* x, const std::int16_t* w) {
  return hn::Set(SumTag(), x[0] * w[0] + x[1] * w[1]);
}
#else
using PairTag = hn::Repartition<std::int16_t, FloatTag>;
using PairVector = hn::Vec<PairTag>;
using ByteTag = hn::Repartition<std::uint8_t, FloatTag>;
using CodeTag = hn::Repartition<std::int8_t, FloatTag>;

/// Returns the lower or upper of two int16 values in each 32-bit lane.
HWY_INLINE SumVector low(PairVector words) {
  return hn::ShiftRight<16>(hn::ShiftLeft<16>(hn::BitCast(SumTag(), words)));
}
HWY_INLINE SumVector high(PairVector words) { return hn::ShiftRight<16>(hn::BitCast(SumTag(), words)); }

/// Returns a[2i] * b[2i] + a[2i + 1] * b[2i + 1] for int16 values. The sums must fit.
HWY_INLINE SumVector pair_sums(PairVector a, PairVector b) {
#if HWY_TARGET <= HWY_AVX3
  return SumVector{_mm512_madd_epi16(a.raw, b.raw)};
#elif HWY_TARGET == HWY_AVX2
  return SumVector{_mm256_madd_epi16(a.raw, b.raw)};
#else
  return hn::Add(hn::Mul(low(a), low(b)), hn::Mul(high(a), high(b)));
#endif
}

/// Returns the 32 bits at the address in every lane.
HWY_INLINE SumVector repeated(const void* from) {
  std::int32_t bits;
  std::memcpy(&bits, from, sizeof bits);
  return hn::Set(SumTag(), bits);
}

HWY_INLINE SumVector word_pairs(const std::int16_t* x, const std::int16_t* w) {
  return pair_sums(hn::BitCast(PairTag(), repeated(x)), hn::LoadU(PairTag(), w));
}

#if HWY_TARGET <= HWY_AVX3_DL
/// Sums of four products of bytes. Highway 1.0.3 does not include the instruction in this target, so its
/// intrinsic cannot be used.
using ByteSums = SumVector;
HWY_INLINE ByteSums more(ByteSums sums, hn::Vec<ByteTag> x, hn::Vec<CodeTag> w) {
  __asm__("vpdpbusd %2, %1, %0" : "+v"(sums.raw) : "v"(x.raw), "v"(w.raw));
  return sums;
}
HWY_INLINE ByteSums begun(SumVector sums) { return sums; }
HWY_INLINE SumVector ended(SumVector, ByteSums sums) { return sums; }
#else
/// Sums of pairs of products of bytes, which must fit 16 bits.
using ByteSums = PairVector;
/// Prevents the compiler from reordering the additions, which would need registers for all products.
HWY_INLINE ByteSums keep_order(ByteSums sums) {
#if HWY_ARCH_X86
  __asm__("" : "+v"(sums.raw));
#endif
  return sums;
}
HWY_INLINE ByteSums more(ByteSums sums, hn::Vec<ByteTag> x, hn::Vec<CodeTag> w) {
#if HWY_TARGET <= HWY_AVX3
  return keep_order(hn::Add(sums, PairVector{_mm512_maddubs_epi16(x.raw, w.raw)}));
#elif HWY_TARGET == HWY_AVX2
  return keep_order(hn::Add(sums, PairVector{_mm256_maddubs_epi16(x.raw, w.raw)}));
#else
  const PairTag d;
  const PairVector left = hn::BitCast(d, x), right = hn::BitCast(d, w), byte = hn::Set(d, 0xff);
  const PairVector even = hn::Mul(hn::And(left, byte), hn::ShiftRight<8>(hn::ShiftLeft<8>(right)));
  return hn::Add(sums,
                 hn::Add(even, hn::Mul(hn::And(hn::ShiftRight<8>(left), byte), hn::ShiftRight<8>(right))));
#endif
}
HWY_INLINE ByteSums begun(SumVector) { return hn::Zero(PairTag()); }
HWY_INLINE SumVector ended(SumVector before, ByteSums sums) {
  return hn::Add(before, pair_sums(sums, hn::Set(PairTag(), 1)));
}
#endif
#endif  // scalar

/// Adds one block: fma(float(sums), x_scale * w_scale, chain).
HWY_INLINE FloatVector next(FloatVector chain, SumVector sums, FloatVector x_scale, const float* w_scale) {
  const FloatTag d;
  return fma_(hn::ConvertTo(d, sums), mul_(x_scale, hn::LoadU(d, w_scale)), chain);
}

/// Return the start value of an output's chain, and store its final value.
HWY_INLINE FloatVector begun_chain(const cpu::BlockChains& a, std::int64_t row, std::int64_t n) {
  const FloatTag d;
  if (a.first == nullptr) return hn::Zero(d);
  return mul_(hn::LoadU(d, a.first + n), hn::Set(d, a.first_factor[row]));
}
HWY_INLINE void store_chain(const cpu::BlockChains& a, std::int64_t row, std::int64_t n, FloatVector chain) {
  const FloatTag d;
  if (a.last_factor != nullptr)
    chain = scaled_product(chain, hn::Set(d, a.last_factor[row]), hn::LoadU(d, a.last_bias + n));
  else if (a.last_bias != nullptr)
    chain = add_(chain, hn::LoadU(d, a.last_bias + n));
  hn::StoreU(chain, d, a.y + row * a.pitch + n);
}

}  // namespace fq::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
