// The quantization formulas, each written once: forward next to its gradient mask, for a value type V that
// is a float or a vector of floats. They call primitives (mul_, rint_, ..) unqualified; argument-dependent
// lookup finds them in V's namespace. Scalar code and CUDA include this file once through formulas.h. A
// Highway source includes it again for each target (the toggle below is Highway's include-per-target
// pattern), hence no pragma once.

#if defined(FQ_FORMULAS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef FQ_FORMULAS_INL_H
#undef FQ_FORMULAS_INL_H
#else
#define FQ_FORMULAS_INL_H
#endif

#ifdef FQ_FORMULAS_VECTOR
HWY_BEFORE_NAMESPACE();
namespace fq::HWY_NAMESPACE {
#else
namespace fq::scalar {
#endif

// ---- integer codes (DESIGN §4, DEPLOY §1) ----

template <class V>
FQ_HD V clamp_(V v, V lower, V upper) {
  return min_(max_(v, lower), upper);
}

/// As clamp_, but keeps NaN, and the sign of a zero at a bound.
template <class V>
FQ_HD V clamp_keeping_(V v, V lower, V upper) {
  return min_(upper, max_(lower, v));
}

/// fl(q / d) without a division: q times inverse = fl(1/d), corrected by its exact residual. Equals div_ bit
/// by bit for integers |q| < 2^16 and 2^-100 <= d <= 2^100 (tested for every q and every significand of d).
/// A zero keeps its sign.
template <class V>
FQ_HD V divide_code(V q, V d, V inverse) {
  const V quotient = mul_(q, inverse);
  const V residual = fms_(quotient, d, q);
  return fnma_(residual, inverse, quotient);
}
template <class V>
FQ_HD auto divides_exactly(V d) {
  return and_(less_equal_(constant_(d, 0x1p-100f), d), less_equal_(d, constant_(d, 0x1p100f)));
}

/// q = sat(rne(fl(x / s))), with a true division.
template <class V>
FQ_HD V quantize_code(V x, V scale, V lower, V upper) {
  return clamp_(rint_(div_(x, scale)), lower, upper);
}

/// q = sat(rne(fl(fl(A) * m))), m = fl(fl(s_x*s_w)/s_y): one multiplication for each accumulator.
template <class V>
FQ_HD V requantize_code(V accumulator, V multiplier, V lower, V upper) {
  return clamp_(rint_(mul_(accumulator, multiplier)), lower, upper);
}

/// v = fma(fl(A), f, t): batch normalization of a sum. With f/s and t/s instead of f and t, the result is
/// the position on a grid of step s.
template <class V>
FQ_HD V normalized_sum(V accumulator, V factor, V shift) {
  return fma_(accumulator, factor, shift);
}
template <class V>
FQ_HD V normalized_code(V accumulator, V multiplier, V offset, V lower, V upper) {
  return clamp_(rint_(normalized_sum(accumulator, multiplier, offset)), lower, upper);
}

/// Batch normalization y = (x - m) * f + t. Its gradient is dx = dy * f + (x - m) * p + r, with p and r
/// computed from the sums of dy and of dy * (x - m).
template <class V>
FQ_HD V normalized(V x, V mean, V factor, V shift) {
  return add_(mul_(sub_(x, mean), factor), shift);
}
template <class V>
FQ_HD V normalized_gradient(V dy, V x, V mean, V factor, V slope, V shift) {
  return add_(add_(mul_(dy, factor), mul_(sub_(x, mean), slope)), shift);
}

/// q = sat(rne(fl(fl(v / s) + z))) - z: an average by division, with storage offset z of the file.
template <class V>
FQ_HD V average_code(V v, V scale, V offset, V lower, V upper) {
  return clamp_(sub_(rint_(add_(div_(v, scale), offset)), offset), lower, upper);
}

/// q = sat(rne(fma(a+za, ra, fma(b+zb, rb, F)))) - zy, F = fl(zy - fl(fl(ra*za) + fl(rb*zb))): addition of
/// two codes. `a` and `b` come with their offsets added; `fused` is F.
template <class V>
FQ_HD V add_code(V a, V b, V ratio_a, V ratio_b, V fused, V offset, V lower, V upper) {
  return clamp_(sub_(rint_(fma_(a, ratio_a, fma_(b, ratio_b, fused))), offset), lower, upper);
}

/// y = fl(fl(sum * scale) + bias): a product of float factors.
template <class V>
FQ_HD V scaled_product(V sum, V scale, V bias) {
  return add_(mul_(sum, scale), bias);
}

template <class V>
FQ_HD V dequantize_code(V code, V scale) {
  return mul_(code, scale);
}

/// q = sat(rne(fl(x / s)) + z) and y = fl(fl(q - z) * s): ONNX's linear quantization. z is an integer.
template <class V>
FQ_HD V linear_code(V x, V scale, V zero_point, V lower, V upper) {
  return add_(quantize_code(x, scale, sub_(lower, zero_point), sub_(upper, zero_point)), zero_point);
}
template <class V>
FQ_HD V linear_value(V code, V scale, V zero_point) {
  return dequantize_code(sub_(code, zero_point), scale);
}

/// The gradient passes where lower < v <= amax (after a ReLU), or lower <= v <= amax, never on the quotient.
/// Signed: lower = -amax. Unsigned: lower = 0. A NaN never passes.
template <class V>
FQ_HD auto mask_closed(V v, V lower, V amax) {
  return and_(less_equal_(lower, v), less_equal_(v, amax));
}
template <class V>
FQ_HD auto mask_open_lower(V v, V lower, V amax) {
  return and_(less_(lower, v), less_equal_(v, amax));
}

// ---- affine codes by the reciprocal of the scale (torch, torchao); their values are linear_value ----

/// rne(fl(x * r)) + z, r = fl(1 / s): the unclamped code.
template <class V>
FQ_HD V affine_position(V x, V reciprocal, V zero_point) {
  return add_(rint_(mul_(x, reciprocal)), zero_point);
}
/// As above, with the zero point added before rounding, as in torch's gradients of a learnable scale.
template <class V>
FQ_HD V affine_position_inside(V x, V reciprocal, V zero_point) {
  return rint_(fma_(x, reciprocal, zero_point));
}
/// dy/ds for a learned scale: (y - x) / s inside the range, distance from the range limit to z outside.
template <class V>
FQ_HD V affine_scale_slope(V x, V position, V scale, V reciprocal, V zero_point, V lower, V upper) {
  const V code = clamp_(position, lower, upper);
  const V inside = mul_(sub_(linear_value(code, scale, zero_point), x), reciprocal);
  return select_(mask_closed(position, lower, upper), inside, sub_(code, zero_point));
}

/// torchao's zero point in the value domain: rne((x - b) / s), with b = z - fl(s * mid) the value of the
/// middle code.
template <class V>
FQ_HD V floating_position(V x, V base, V scale) {
  return rint_(div_(sub_(x, base), scale));
}
/// y = (q - mid) * s + z, from q - mid.
template <class V>
FQ_HD V floating_value(V centred, V scale, V zero_point) {
  return add_(mul_(centred, scale), zero_point);
}

/// The gradient of torch's clamp and of clip passes strictly inside the range.
template <class V>
FQ_HD auto mask_open(V v, V lower, V upper) {
  return and_(less_(lower, v), less_(v, upper));
}

/// fl(dy * s) where the mask is set, else 0: torchao's gradient of (q - z) * s.
template <class V, class M>
FQ_HD V masked_product(V dy, V scale, M mask) {
  return select_(mask, mul_(dy, scale), constant_(dy, 0.0f));
}

// ---- minifloats: the value, not the byte ----

/// Rounds a magnitude (not negative, or NaN) half to even on the grid step * max(2^floor(log2 m),
/// min_normal).
template <class V>
FQ_HD V round_to_grid(V m, float min_normal, float step) {
  const V unit = max_(exponent_(m), constant_(m, min_normal));
  return snap_(m, unit, constant_(m, step * 0x1p23f));
}
/// As above, saturating at `max`; keeps NaN.
template <class V>
FQ_HD V round_magnitude(V m, float max, float min_normal, float step) {
  return round_to_grid(min_(constant_(m, max), m), min_normal, step);
}
/// As above for any number; keeps the sign of zero.
template <class V>
FQ_HD V round_minifloat(V v, float max, float min_normal, float step) {
  return copysign_(round_magnitude(abs_(v), max, min_normal, step), v);
}

/// E4M3 (OCP OFP8).
template <class V>
FQ_HD V round_e4m3(V v) {
  return round_minifloat(v, 448.0f, 0x1p-6f, 0x1p-3f);
}

/// E2M1 (OCP MX).
template <class V>
FQ_HD V round_e2m1(V v) {
  return round_minifloat(v, 6.0f, 1.0f, 0.5f);
}

/// The code of a magnitude on the grid as a word: exponent, then mantissa, in the low bits.
template <class V>
FQ_HD auto magnitude_code(V magnitude, float min_normal, int mantissa) {
  const V least = constant_(magnitude, min_normal), none = constant_(magnitude, 0.0f);
  const auto subnormal = less_(magnitude, least);
  const auto above = sub_words_(words_(select_(subnormal, add_(magnitude, least), magnitude)), words_(least));
  const auto exponent_one = words_(select_(subnormal, none, constant_(magnitude, 0x1p-126f)));
  return shift_right_(add_words_(above, exponent_one), 23 - mantissa);
}
/// Adds the sign of `number` above the magnitude bits.
template <class V, class W>
FQ_HD auto signed_code(W magnitude, V number, int exponent, int mantissa) {
  return or_words_(magnitude, shift_left_(shift_right_(words_(number), 31), exponent + mantissa));
}
template <class V>
FQ_HD auto minifloat_code(V value, float min_normal, int exponent, int mantissa) {
  return signed_code(magnitude_code(abs_(value), min_normal, mantissa), value, exponent, mantissa);
}
/// The number of a code. Values above `max` are infinity up to `infinity`, else NaN.
template <class V, class W>
FQ_HD V minifloat_value(W code, V like, float max, float infinity, float min_normal, float step, int exponent,
                        int mantissa) {
  const auto one = word_like_(code, 1u << mantissa);
  const auto magnitude = and_words_(code, word_like_(code, (1u << (exponent + mantissa)) - 1u));
  const V least = constant_(like, min_normal);
  const V small = mul_(to_float_(magnitude), constant_(like, min_normal * step));
  const V large =
      float_bits_(add_words_(shift_left_(sub_words_(magnitude, one), 23 - mantissa), words_(least)));
  const V value = select_(less_(small, least), small, large);
  const V number = select_(less_equal_(value, constant_(like, max)), value,
                           constant_(like, std::numeric_limits<float>::infinity()));
  const auto sign = shift_left_(shift_right_(code, exponent + mantissa), 31);
  return select_(less_equal_(value, constant_(like, infinity > max ? infinity : max)),
                 float_bits_(or_words_(words_(number), sign)),
                 constant_(like, std::numeric_limits<float>::quiet_NaN()));
}

/// q = e4m3(fl(x / s)): the value of the code.
template <class V>
FQ_HD V quantize_e4m3(V x, V scale) {
  return round_e4m3(div_(x, scale));
}

// ---- ModelOpt's arithmetic (tensor_quant.py) ----

/// s = bound / amax, 0 where amax <= 2^-24 and `guard`.
template <class V>
FQ_HD V modelopt_scale(V amax, V bound, bool guard) {
  const V scale = div_(bound, amax);
  return guard ? select_(less_equal_(amax, constant_(amax, 0x1p-24f)), constant_(amax, 0.0f), scale) : scale;
}
/// The divisor of codes: s, or 1 if the guard made s 0.
template <class V>
FQ_HD V modelopt_divisor(V amax, V scale, bool guard) {
  return guard ? select_(less_equal_(amax, constant_(amax, 0x1p-24f)), constant_(amax, 1.0f), scale) : scale;
}

/// q = clamp(rne(x*s), lo, hi). NaN stays NaN and zeros keep their sign.
template <class V>
FQ_HD V modelopt_code(V x, V scale, V lower, V upper) {
  return clamp_keeping_(rint_(mul_(x, scale)), lower, upper);
}
/// y = q / d.
template <class V>
FQ_HD V modelopt_fake_quant(V x, V scale, V divisor, V lower, V upper) {
  return div_(modelopt_code(x, scale, lower, upper), divisor);
}
/// The gradient passes where |x| <= amax. A NaN never passes.
template <class V>
FQ_HD auto modelopt_mask(V x, V amax) {
  return less_equal_(abs_(x), amax);
}

/// y = clamp(rne(x), lo, hi); the gradient passes where lo <= x <= hi.
template <class V>
FQ_HD V modelopt_int_cast(V x, V lower, V upper) {
  return clamp_keeping_(rint_(x), lower, upper);
}

/// fl(c * fl(1/v)): PyTorch's division of a number by a tensor.
template <class V>
FQ_HD V number_quotient(float c, V v) {
  return mul_(constant_(v, c), div_(constant_(v, 1.0f), v));
}

/// s = fl(448 * fl(1/a)), with a = 1 if amax <= 2^-24.
template <class V>
FQ_HD V modelopt_e4m3_scale(V amax) {
  return number_quotient(448.0f,
                         select_(less_equal_(amax, constant_(amax, 0x1p-24f)), constant_(amax, 1.0f), amax));
}

/// s = fl(448 / a), as in ModelOpt's CUDA kernel and its search for the smallest error.
template <class V>
FQ_HD V modelopt_e4m3_scale_divided(V amax) {
  const V safe = select_(less_equal_(amax, constant_(amax, 0x1p-24f)), constant_(amax, 1.0f), amax);
  return div_(constant_(amax, 448.0f), safe);
}

/// y = e4m3(fl(x*s)) * inverse, inverse = fl(1/s). Computed on magnitudes, because y has the sign of x.
template <class V>
FQ_HD V modelopt_scaled_e4m3(V x, V scale, V inverse) {
  const V rounded = round_magnitude(mul_(abs_(x), abs_(scale)), 448.0f, 0x1p-6f, 0x1p-3f);
  return copysign_(mul_(rounded, abs_(inverse)), x);
}

#ifdef FQ_FORMULAS_VECTOR
}  // namespace fq::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#else
}  // namespace fq::scalar
#endif

#include "fakequant/core/numerics/detail/range_formulas-inl.h"

#endif  // toggle
