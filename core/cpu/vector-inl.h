// The primitives of the formulas for Highway vectors, and the formulas themselves, once for each target.
// Included inside of a source that goes through foreach_target.h; not a public header. No pragma once for
// that reason.

#if defined(FQ_VECTOR_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef FQ_VECTOR_INL_H
#undef FQ_VECTOR_INL_H
#else
#define FQ_VECTOR_INL_H
#endif

#include <hwy/highway.h>

#include "fakequant/core/host_device.h"

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
FQ_HD FloatMask less_(FloatVector a, FloatVector b) { return hn::Lt(a, b); }
FQ_HD FloatMask less_equal_(FloatVector a, FloatVector b) { return hn::Le(a, b); }
FQ_HD FloatMask is_nan_(FloatVector a) { return hn::IsNaN(a); }
FQ_HD FloatMask and_(FloatMask a, FloatMask b) { return hn::And(a, b); }
FQ_HD FloatVector select_(FloatMask condition, FloatVector yes, FloatVector no) {
  return hn::IfThenElse(condition, yes, no);
}
FQ_HD FloatVector min_(FloatVector a, FloatVector b) { return hn::IfThenElse(hn::Lt(a, b), a, b); }
FQ_HD FloatVector max_(FloatVector a, FloatVector b) { return hn::IfThenElse(hn::Lt(b, a), a, b); }
FQ_HD FloatVector rint_(FloatVector a) {
  const FloatVector limit = hn::Set(FloatTag(), 0x1p23f);
  const FloatVector magnitude = hn::Abs(a);
  const FloatVector rounded = hn::Sub(hn::Add(magnitude, limit), limit);
  return hn::IfThenElse(hn::Lt(magnitude, limit), hn::CopySign(rounded, a), a);
}

}  // namespace fq::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#define FQ_FORMULAS_VECTOR
#include "fakequant/core/formulas-inl.h"
#undef FQ_FORMULAS_VECTOR

#endif  // toggle
