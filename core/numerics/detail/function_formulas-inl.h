// exp, erf and the activations of transformers that use them. Each is written once, forward next to its
// slope, and included like formulas-inl.h, hence no pragma once. Not a public header.

#if defined(FQ_FUNCTION_FORMULAS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef FQ_FUNCTION_FORMULAS_INL_H
#undef FQ_FUNCTION_FORMULAS_INL_H
#else
#define FQ_FUNCTION_FORMULAS_INL_H
#endif

#ifdef FQ_FORMULAS_VECTOR
HWY_BEFORE_NAMESPACE();
namespace fq::HWY_NAMESPACE {
#else
namespace fq::scalar {
#endif

/// e^x for x <= 0, with an error of at most 1.3 units in the last place; 0 below -87.3, the smallest
/// exponent of a float. x = n*log(2) + r, where log(2) is subtracted in two parts (Cody and Waite 1980). e^r
/// is a minimax polynomial and 2^n is built from its bits. NaN stays.
template <class V>
FQ_HD V exp_below_zero(V x) {
  const V round = constant_(x, 0x1.8p23f);  // floats of this size are integers
  const V shifted = fma_(x, constant_(x, 1.44269504f), round), n = sub_(shifted, round);
  V r = fma_(n, constant_(x, -0.693145752f), x);
  r = fma_(n, constant_(x, -1.42860677e-6f), r);
  V p = fma_(constant_(x, 1.38319808e-3f), r, constant_(x, 8.37550033e-3f));
  p = fma_(p, r, constant_(x, 4.16689515e-2f));
  p = fma_(p, r, constant_(x, 1.66664466e-1f));
  p = fma_(p, r, constant_(x, 4.99999851e-1f));
  p = fma_(p, r, constant_(x, 1.0f));
  p = fma_(p, r, constant_(x, 1.0f));
  const auto bits = words_(shifted);
  const auto power = add_words_(shift_left_(bits, 23), word_like_(bits, 0x3f800000u));
  return select_(less_(x, constant_(x, -87.3f)), constant_(x, 0.0f), mul_(p, float_bits_(power)));
}

/// The error function as in ONNX Runtime's f32 code (MLAS, after Juffa): an odd polynomial below 0.921875, 1
/// - e^-p(|x|) above, and 1 from 3.925. The error is at most 1.2e-7. NaN stays.
template <class V>
FQ_HD V erf_value(V x) {
  const V a = min_(constant_(x, 3.925f), abs_(x)), s = mul_(a, a);
  V low = fma_(constant_(x, -5.99104969e-4f), s, constant_(x, 4.99339588e-3f));
  low = fma_(low, s, constant_(x, -2.67667342e-2f));
  low = fma_(low, s, constant_(x, 1.12818025e-1f));
  low = fma_(low, s, constant_(x, -3.76124859e-1f));
  low = fma_(low, s, constant_(x, 1.28379151e-1f));
  low = fma_(low, a, a);
  V high = fma_(constant_(x, 1.72948930e-5f), a, constant_(x, -3.83208680e-4f));
  high = fma_(high, a, constant_(x, 3.88393435e-3f));
  high = fma_(high, a, constant_(x, -2.42545605e-2f));
  high = fma_(high, a, constant_(x, 1.06777847e-1f));
  high = fma_(high, a, constant_(x, 6.34846687e-1f));
  high = fma_(high, a, constant_(x, 1.28717512e-1f));
  high = fma_(high, a, a);
  high = sub_(constant_(x, 1.0f), exp_below_zero(sub_(constant_(x, 0.0f), high)));
  return copysign_(select_(less_(a, constant_(x, 0.921875f)), low, high), x);
}

/// 1 / (1 + e^-x)
template <class V>
FQ_HD V sigmoid_value(V x) {
  const V one = constant_(x, 1.0f), zero = constant_(x, 0.0f), e = exp_below_zero(sub_(zero, abs_(x)));
  return div_(select_(less_(x, zero), e, one), add_(one, e));
}

/// x * sigmoid(x) (Elfwing et al., arXiv:1702.03118).
template <class V>
FQ_HD V silu_value(V x) {
  return mul_(x, sigmoid_value(x));
}
template <class V>
FQ_HD V silu_slope(V x) {
  const V one = constant_(x, 1.0f), s = sigmoid_value(x);
  return mul_(s, add_(one, mul_(x, sub_(one, s))));
}

/// Cumulative distribution function of the normal distribution.
template <class V>
FQ_HD V normal_share(V x) {
  const V erf = erf_value(mul_(x, constant_(x, 0.707106781f)));
  return mul_(constant_(x, 0.5f), add_(constant_(x, 1.0f), erf));
}
/// x * normal_share(x) (Hendrycks and Gimpel, arXiv:1606.08415).
template <class V>
FQ_HD V gelu_value(V x) {
  return mul_(x, normal_share(x));
}
template <class V>
FQ_HD V gelu_slope(V x) {
  const V density = mul_(exp_below_zero(mul_(mul_(x, x), constant_(x, -0.5f))), constant_(x, 0.398942280f));
  return add_(normal_share(x), mul_(x, density));
}

#ifdef FQ_FORMULAS_VECTOR
}  // namespace fq::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#else
}  // namespace fq::scalar
#endif

#endif  // toggle
