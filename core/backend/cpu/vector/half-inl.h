// Loads and stores of float vectors in f32, f16 and bf16, with the bits of number_formats.h. Include in a
// source that uses foreach_target.h, after vector-inl.h; not a public header. Included once for each target,
// hence no pragma once.

#if defined(FQ_HALF_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef FQ_HALF_INL_H
#undef FQ_HALF_INL_H
#else
#define FQ_HALF_INL_H
#endif

#include "fakequant/core/numerics/number_formats.h"

HWY_BEFORE_NAMESPACE();
namespace fq::HWY_NAMESPACE {

using ShortTag = hn::Rebind<std::uint16_t, FloatTag>;
using ShortVector = hn::Vec<ShortTag>;
inline constexpr bool kHardwareHalf = HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2;

FQ_HD FloatVector float_bits(WordVector words) { return hn::BitCast(FloatTag(), words); }
FQ_HD WordVector word_bits(FloatVector v) { return hn::BitCast(WordTag(), v); }
FQ_HD WordVector word(std::uint32_t value) { return hn::Set(WordTag(), value); }

FQ_HD FloatVector widen_f16(ShortVector bits) {
  if constexpr (kHardwareHalf)
    return hn::PromoteTo(FloatTag(), hn::BitCast(hn::Rebind<hwy::float16_t, FloatTag>(), bits));
  const WordVector half = hn::PromoteTo(WordTag(), bits);
  const WordVector magnitude = hn::ShiftLeft<13>(hn::And(half, word(0x7fff)));
  const WordVector sign = hn::ShiftLeft<16>(hn::And(half, word(0x8000)));
  const WordVector finite = word_bits(hn::Mul(float_bits(magnitude), hn::Set(FloatTag(), 0x1p112f)));
  const WordVector special = hn::Or(magnitude, word(0x7f800000));
  const auto is_special = hn::Gt(magnitude, word((0x7c00u << 13) - 1));
  return float_bits(hn::Or(sign, hn::IfThenElse(is_special, special, finite)));
}

FQ_HD ShortVector narrow_f16(FloatVector v) {
  if constexpr (kHardwareHalf)
    return hn::BitCast(ShortTag(), hn::DemoteTo(hn::Rebind<hwy::float16_t, FloatTag>(), v));
  const WordVector magnitude = hn::And(word_bits(v), word(0x7fffffff));
  const WordVector sign = hn::ShiftRight<16>(hn::And(word_bits(v), word(0x80000000)));
  const WordVector rebased = hn::Sub(magnitude, word(0x38000000));
  const WordVector odd = hn::And(hn::ShiftRight<13>(rebased), word(1));
  const WordVector normal = hn::ShiftRight<13>(hn::Add(rebased, hn::Add(word(0xfff), odd)));
  const WordVector shifted = word_bits(hn::Add(float_bits(magnitude), hn::Set(FloatTag(), 0.5f)));
  const WordVector small = hn::Sub(shifted, word(0x3f000000));
  const WordVector nan = hn::Or(word(0x7e00), hn::And(hn::ShiftRight<13>(magnitude), word(0x1ff)));
  WordVector half = hn::IfThenElse(hn::Lt(magnitude, word(0x38800000)), small, normal);
  half = hn::IfThenElse(hn::Gt(magnitude, word(0x477fefff)), word(0x7c00), half);
  half = hn::IfThenElse(hn::Gt(magnitude, word(0x7f800000)), nan, half);
  return hn::TruncateTo(ShortTag(), hn::Or(sign, half));
}

FQ_HD FloatVector widen_bf16(ShortVector bits) {
  return float_bits(hn::ShiftLeft<16>(hn::PromoteTo(WordTag(), bits)));
}

FQ_HD ShortVector narrow_bf16(FloatVector v) {
  const WordVector bits = word_bits(v), upper = hn::ShiftRight<16>(bits);
  const WordVector carry = hn::Add(word(0x7fff), hn::And(upper, word(1)));
  const WordVector rounded = hn::ShiftRight<16>(hn::Add(bits, carry));
  const auto nan = hn::RebindMask(WordTag(), is_nan_(v));
  return hn::TruncateTo(ShortTag(), hn::IfThenElse(nan, hn::Or(upper, word(0x40)), rounded));
}

FQ_HD FloatVector load(const float* p) { return hn::LoadU(FloatTag(), p); }
FQ_HD ShortVector load_short(const void* p) {
  return hn::LoadU(ShortTag(), static_cast<const std::uint16_t*>(p));
}
FQ_HD FloatVector load(const float16* p) { return widen_f16(load_short(p)); }
FQ_HD FloatVector load(const bfloat16* p) { return widen_bf16(load_short(p)); }

/// Stores lanes. With `stream` the store bypasses the caches, and p must be aligned to the vector.
template <class Vector, class Tag, class T>
FQ_HD void store_lanes(Vector v, Tag d, T* p, bool stream) {
  if (stream)
    hn::Stream(v, d, p);
  else
    hn::StoreU(v, d, p);
}
FQ_HD void store(FloatVector v, float* p, bool stream) { store_lanes(v, FloatTag(), p, stream); }
FQ_HD void store_short(ShortVector v, void* p, bool stream) {
  store_lanes(v, ShortTag(), static_cast<std::uint16_t*>(p), stream);
}
FQ_HD void store(FloatVector v, float16* p, bool stream) { store_short(narrow_f16(v), p, stream); }
FQ_HD void store(FloatVector v, bfloat16* p, bool stream) { store_short(narrow_bf16(v), p, stream); }

}  // namespace fq::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
