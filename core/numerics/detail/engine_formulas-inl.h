// The codes of activations in engines that take their ranges from the numbers themselves. The third part of
// formulas-inl.h, which includes it and says how it is included. No pragma once for that reason.

#if defined(FQ_ENGINE_FORMULAS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef FQ_ENGINE_FORMULAS_INL_H
#undef FQ_ENGINE_FORMULAS_INL_H
#else
#define FQ_ENGINE_FORMULAS_INL_H
#endif

#ifdef FQ_FORMULAS_VECTOR
HWY_BEFORE_NAMESPACE();
namespace fq::HWY_NAMESPACE {
#else
namespace fq::scalar {
#endif

/// min(15, trunc(fl(fl(x * r) + 8.5))) - 8, halves up: ggml's codes of 4 bits, -8 .. 7.
template <class V>
FQ_HD V halves_up_code(V x, V factor) {
  const V eight = constant_(x, 8.0f);
  const V up = add_(mul_(x, factor), constant_(x, 8.5f));
  return sub_(trunc_(clamp_(up, constant_(x, 0.0f), constant_(x, 15.0f))), eight);
}

/// rne(fl(x * r)) + zero, saturated to -128 .. 127: XNNPACK's codes of a row.
template <class V>
FQ_HD V shifted_code(V x, V factor, V zero) {
  return clamp_(add_(rint_(mul_(x, factor)), zero), constant_(x, -128.0f), constant_(x, 127.0f));
}

#ifdef FQ_FORMULAS_VECTOR
}  // namespace fq::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#else
}  // namespace fq::scalar
#endif

#endif  // toggle
