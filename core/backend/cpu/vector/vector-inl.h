// Primitives of the formulas for Highway vectors, and the formulas themselves, once for each target. Include
// in a source that uses foreach_target.h; not a public header. Included once for each target, hence no pragma
// once.

#if defined(FQ_VECTOR_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef FQ_VECTOR_INL_H
#undef FQ_VECTOR_INL_H
#else
#define FQ_VECTOR_INL_H
#endif

#include <cmath>
#include <limits>

#include <hwy/highway.h>

#include "fakequant/core/numerics/number_formats.h"

HWY_BEFORE_NAMESPACE();
namespace fq::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using FloatTag = hn::ScalableTag<float>;
using FloatVector = hn::Vec<FloatTag>;
using FloatMask = hn::Mask<FloatTag>;

FQ_HD FloatVector constant_(FloatVector, float value) { return hn::Set(FloatTag(), value); }
FQ_HD FloatVector add_(FloatVector a, FloatVector b) { return hn::Add(a, b); }
FQ_HD FloatVector sub_(FloatVector a, FloatVector b) { return hn::Sub(a, b); }
FQ_HD FloatVector mul_(FloatVector a, FloatVector b) { return hn::Mul(a, b); }
FQ_HD FloatVector div_(FloatVector a, FloatVector b) { return hn::Div(a, b); }
FQ_HD FloatVector abs_(FloatVector a) { return hn::Abs(a); }
FQ_HD FloatVector copysign_(FloatVector magnitude, FloatVector sign) { return hn::CopySign(magnitude, sign); }
FQ_HD FloatVector flip_(FloatVector a, FloatVector b) {
  return hn::Xor(a, hn::And(b, hn::SignBit(FloatTag())));
}
FQ_HD FloatMask less_(FloatVector a, FloatVector b) { return hn::Lt(a, b); }
FQ_HD FloatMask less_equal_(FloatVector a, FloatVector b) { return hn::Le(a, b); }
FQ_HD FloatMask is_nan_(FloatVector a) { return hn::IsNaN(a); }
FQ_HD FloatMask and_(FloatMask a, FloatMask b) { return hn::And(a, b); }
FQ_HD FloatVector select_(FloatMask condition, FloatVector yes, FloatVector no) {
  return hn::IfThenElse(condition, yes, no);
}
/// min and max of x86, and its rounding, have the semantics of the scalar primitives.
inline constexpr bool kHardwareMin = HWY_ARCH_X86 && HWY_TARGET < HWY_EMU128;
inline constexpr bool kHardwareRint = HWY_ARCH_X86 && HWY_TARGET <= HWY_SSE4;

FQ_HD FloatVector min_(FloatVector a, FloatVector b) {
  if constexpr (kHardwareMin) return hn::Min(a, b);
  return hn::IfThenElse(hn::Lt(a, b), a, b);
}
FQ_HD FloatVector max_(FloatVector a, FloatVector b) {
  if constexpr (kHardwareMin) return hn::Max(a, b);
  return hn::IfThenElse(hn::Lt(b, a), a, b);
}
FQ_HD FloatVector rint_(FloatVector a) {
  if constexpr (kHardwareRint) return hn::Round(a);
  const FloatVector limit = hn::Set(FloatTag(), 0x1p23f);
  const FloatVector magnitude = hn::Abs(a);
  const FloatVector rounded = hn::Sub(hn::Add(magnitude, limit), limit);
  return hn::IfThenElse(hn::Lt(magnitude, limit), hn::CopySign(rounded, a), a);
}
FQ_HD FloatVector trunc_(FloatVector a) { return hn::Trunc(a); }
FQ_HD FloatVector exponent_(FloatVector a) {
  const hn::RebindToUnsigned<FloatTag> d;
  return hn::BitCast(FloatTag(), hn::And(hn::BitCast(d, a), hn::Set(d, 0x7f800000u)));
}

/// a*b + c, a*b - c and c - a*b, rounded once. Slow without the instruction; formulas then use another
/// method.
inline constexpr bool kFused = HWY_NATIVE_FMA;
template <class F>
FQ_HD FloatVector map_lanes(FloatVector a, FloatVector b, FloatVector c, F&& f) {
  const FloatTag d;
  HWY_ALIGN float lanes[3][HWY_MAX_BYTES / sizeof(float)];
  hn::Store(a, d, lanes[0]);
  hn::Store(b, d, lanes[1]);
  hn::Store(c, d, lanes[2]);
  for (std::size_t i = 0; i < hn::Lanes(d); ++i) lanes[0][i] = f(lanes[0][i], lanes[1][i], lanes[2][i]);
  return hn::Load(d, lanes[0]);
}
FQ_HD FloatVector fma_(FloatVector a, FloatVector b, FloatVector c) {
  if constexpr (kFused) return hn::MulAdd(a, b, c);
  return map_lanes(a, b, c, [](float x, float y, float z) { return std::fma(x, y, z); });
}
FQ_HD FloatVector fms_(FloatVector a, FloatVector b, FloatVector c) {
  if constexpr (kFused) return hn::MulSub(a, b, c);
  return map_lanes(a, b, c, [](float x, float y, float z) { return std::fma(x, y, -z); });
}
FQ_HD FloatVector fnma_(FloatVector a, FloatVector b, FloatVector c) {
  if constexpr (kFused) return hn::NegMulAdd(a, b, c);
  return map_lanes(a, b, c, [](float x, float y, float z) { return std::fma(-x, y, z); });
}
FQ_HD FloatVector snap_(FloatVector a, FloatVector b, FloatVector c) {
  if constexpr (kFused) return hn::NegMulAdd(b, c, hn::MulAdd(b, c, a));
  const FloatVector product = hn::Mul(b, c);
  return hn::Sub(hn::Add(a, product), product);
}

using WordTag = hn::RebindToUnsigned<FloatTag>;
using WordVector = hn::Vec<WordTag>;
FQ_HD WordVector words_(FloatVector a) { return hn::BitCast(WordTag(), a); }
FQ_HD FloatVector float_bits_(WordVector w) { return hn::BitCast(FloatTag(), w); }
FQ_HD FloatVector to_float_(WordVector w) {
  return hn::ConvertTo(FloatTag(), hn::BitCast(hn::RebindToSigned<FloatTag>(), w));
}
FQ_HD WordVector add_words_(WordVector a, WordVector b) { return hn::Add(a, b); }
FQ_HD WordVector sub_words_(WordVector a, WordVector b) { return hn::Sub(a, b); }
FQ_HD WordVector or_words_(WordVector a, WordVector b) { return hn::Or(a, b); }
FQ_HD WordVector and_words_(WordVector a, WordVector b) { return hn::And(a, b); }
FQ_HD WordVector word_like_(WordVector, std::uint32_t value) { return hn::Set(WordTag(), value); }
FQ_HD WordVector shift_left_(WordVector w, int bits) {
  return hn::Shl(w, hn::Set(WordTag(), static_cast<std::uint32_t>(bits)));
}
FQ_HD WordVector shift_right_(WordVector w, int bits) {
  return hn::Shr(w, hn::Set(WordTag(), static_cast<std::uint32_t>(bits)));
}

}  // namespace fq::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#define FQ_FORMULAS_VECTOR
#include "fakequant/core/numerics/detail/formulas-inl.h"
#undef FQ_FORMULAS_VECTOR

#endif  // toggle
