// Formulas of ranges, clips and blocks for the reference functions, and for engines' codes of rows and
// blocks. This is the second half of formulas-inl.h, which includes this file; hence no pragma once.

#if defined(FQ_RANGE_FORMULAS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef FQ_RANGE_FORMULAS_INL_H
#undef FQ_RANGE_FORMULAS_INL_H
#else
#define FQ_RANGE_FORMULAS_INL_H
#endif

#ifdef FQ_FORMULAS_VECTOR
HWY_BEFORE_NAMESPACE();
namespace fq::HWY_NAMESPACE {
#else
namespace fq::scalar {
#endif

// ---- scale and zero point of a range lo <= 0 <= hi (torch's observers, torchao) ----

/// Returns v limited to at least or at most `bound`; NaN stays.
template <class V>
FQ_HD V clamp_min(V v, V bound) {
  return select_(less_(v, bound), bound, v);
}
template <class V>
FQ_HD V clamp_max(V v, V bound) {
  return select_(less_(bound, v), bound, v);
}
template <class V>
FQ_HD V symmetric_scale(V lower, V upper, V half_steps) {
  return div_(clamp_min(upper, sub_(constant_(lower, 0.0f), lower)), half_steps);
}
/// The larger of lo / qmin and hi / qmax, so that no value is clipped. The first is used only if it is
/// larger.
template <class V>
FQ_HD V no_clipping_scale(V lower, V upper, V quant_min, V quant_max) {
  const V below = div_(lower, quant_min), above = div_(upper, quant_max);
  return select_(less_(above, below), below, above);
}
/// Moving average of ranges: v + c * (next - v).
template <class V>
FQ_HD V moving_average(V v, V next, V constant) {
  return add_(v, mul_(constant, sub_(next, v)));
}
/// s = amax / max, with max the largest code value.
template <class V>
FQ_HD V unit_scale(V amax, V max) {
  return div_(amax, max);
}
template <class V>
FQ_HD V asymmetric_scale(V lower, V upper, V steps) {
  return div_(sub_(upper, lower), steps);
}
/// clamp(qmin - rne(lo / s), qmin, qmax).
template <class V>
FQ_HD V asymmetric_zero_point(V lower, V scale, V quant_min, V quant_max) {
  return clamp_keeping_(sub_(quant_min, rint_(div_(lower, scale))), quant_min, quant_max);
}

// ---- pytorch-quantization (tensor_quant.py, clip.py) ----

/// The integer of a range's zero: rne(min / step) - lo, step = (max - min) / (2^bits - 1), lo = -2^(bits-1).
template <class V>
FQ_HD V range_zero(V min, V step, V lower) {
  return sub_(rint_(div_(min, step)), lower);
}
/// y = (clamp(rne(x / step) - z, lo, hi) + z) * step; the gradient passes by mask_closed over the range.
template <class V>
FQ_HD V range_fake_quant(V x, V step, V zero, V lower, V upper) {
  const V code = clamp_keeping_(sub_(rint_(div_(x, step)), zero), lower, upper);
  return mul_(add_(code, zero), step);
}

/// y = max(min(x, hi), lo), NaN where one of them is; the gradient passes by mask_open.
template <class V>
FQ_HD V clip_value(V x, V lower, V upper) {
  const V below = select_(is_nan_(upper), upper, select_(less_(upper, x), upper, x));
  return select_(is_nan_(lower), lower, select_(less_(below, lower), lower, below));
}

// ---- ModelOpt's blocks (fp4_kernel.py, tensor_quant_mx.cu) ----

/// e2m1 of |v|: half to even, and 6 from 5 upwards and for NaN.
template <class V>
FQ_HD V e2m1_magnitude(V v) {
  return round_to_grid(min_(abs_(v), constant_(v, 6.0f)), 1.0f, 0.5f);
}
/// Applies FP4's sign of x to a magnitude: minus unless x >= 0, so -0 becomes +0 and NaN becomes negative.
template <class V>
FQ_HD V fp4_signed(V x, V magnitude) {
  const V number = max_(add_(x, constant_(x, 0.0f)), constant_(x, -0x1p-126f));
  return flip_(magnitude, number);
}
/// The divisor of a block: its scale, or 1 if the scale is 0, infinite or NaN.
template <class V>
FQ_HD V fp4_divisor(V scale) {
  const V magnitude = abs_(scale), zero = constant_(scale, 0.0f);
  const auto usable = and_(less_(zero, magnitude), less_equal_(magnitude, constant_(scale, 0x1.fffffep127f)));
  return select_(usable, scale, constant_(scale, 1.0f));
}
/// y = e2m1(|x| / d) * d with the sign of x.
template <class V>
FQ_HD V fp4_fake_quant(V x, V divisor) {
  return fp4_signed(x, mul_(e2m1_magnitude(div_(abs_(x), divisor)), divisor));
}
/// As above for a block whose scale may be 0: then y is +0.
template <class V>
FQ_HD V fp4_block_fake_quant(V x, V scale, V divisor) {
  const V zero = constant_(x, 0.0f);
  return select_(less_equal_(abs_(scale), zero), zero, fp4_fake_quant(x, divisor));
}
/// s = e4m3(min(amax / (6*g), 448)) * g, or 1 below 1e-5; g = fl(global amax / 2688), or 1e-12 unless
/// positive.
template <class V>
FQ_HD V nvfp4_scale(V amax, V global_scale) {
  const V ratio = min_(div_(amax, mul_(constant_(amax, 6.0f), global_scale)), constant_(amax, 448.0f));
  const V scale = mul_(round_e4m3(ratio), global_scale);
  return select_(less_equal_(constant_(amax, 1e-5f), scale), scale, constant_(amax, 1.0f));
}

/// The smallest E8M0 power of two, 2^-127 .. 2^127, that is at least v; v must be finite and not negative.
template <class V>
FQ_HD V power_of_two(V v) {
  const V power = max_(exponent_(v), constant_(v, 0x1p-127f));
  const auto up = and_(less_(power, v), less_(v, constant_(v, 0x1p127f)));
  return select_(up, add_(power, power), power);
}
/// The power of two by which numbers of a format up to `max` are multiplied to reach amax, which must not be
/// 0 or infinite.
template <class V>
FQ_HD V power_of_two_unscale(V amax, V max) {
  return power_of_two(div_(amax, max));
}

/// Contribution of an element to the gradient of its range, before the factor dy: for clip and for LSQ.
/// `lower` is the lower limit of the mask, 0 for unsigned codes.
template <class V>
FQ_HD V clip_share(V x, V lower, V amax) {
  const V none = constant_(x, 0.0f);
  const V below = select_(and_(less_(lower, none), less_equal_(x, lower)), constant_(x, -1.0f), none);
  return select_(less_equal_(amax, x), constant_(x, 1.0f), below);
}
template <class V>
FQ_HD V lsq_share(V x, V code, V scale, V lower, V amax) {
  return select_(mask_closed(x, lower, amax), sub_(code, div_(x, scale)), code);
}

/// s = fl(amax / bound), with `least` instead of amax for a zero range.
template <class V>
FQ_HD V range_scale(V amax, float bound, float least) {
  const V range = select_(less_equal_(amax, constant_(amax, 0x1p-24f)), constant_(amax, least), amax);
  return div_(range, constant_(amax, bound));
}
/// The range of a scale that was raised to a power of two. A zero range stays.
template <class V>
FQ_HD V raised_range(V amax, V scale, float bound) {
  return select_(less_equal_(amax, constant_(amax, 0x1p-24f)), amax, mul_(scale, constant_(amax, bound)));
}
/// Scales of 8 bits: s = c * g, with c = e4m3(fl(fl(amax / bound) / g)) at least 2^-9; and powers of two.
template <class V>
FQ_HD V e4m3_scale(V amax, float bound, float unit) {
  const V code = round_e4m3(div_(div_(amax, constant_(amax, bound)), constant_(amax, unit)));
  return mul_(max_(code, constant_(amax, 0x1p-9f)), constant_(amax, unit));
}
template <class V>
FQ_HD V e8m0_scale(V amax, float bound) {
  return power_of_two(div_(amax, constant_(amax, bound)));
}
/// The range of this scale, or amax if amax is larger.
template <class V>
FQ_HD V held_range(V amax, V scale, float bound) {
  return max_(mul_(scale, constant_(amax, bound)), amax);
}
/// y = sign(x) * (round(|x| * scale) * unscale) on a minifloat grid, with zeros as +0. `nan` is the rounded
/// value of a NaN (NaN, `max` or another number) and comes out positive.
template <class V>
FQ_HD V block_fake_quant(V x, V scale, V unscale, float max, float min_normal, float step, float nan) {
  const V scaled = mul_(abs_(x), scale), limit = constant_(x, max);
  V number = nan == max ? min_(scaled, limit) : min_(limit, scaled);
  if (nan < max) number = select_(is_nan_(number), constant_(x, nan), number);
  const V magnitude = mul_(round_to_grid(number, min_normal, step), unscale);
  return flip_(magnitude, min_(add_(x, constant_(x, 0.0f)), constant_(x, 0x1p-126f)));
}

/// Rounds half away from zero to 0, 1/4, 1/2, 1 .. 16, the magnitudes of E3M0.
template <class V>
FQ_HD V e3m0_magnitude(V v) {
  const V magnitude = min_(abs_(v), constant_(v, 16.0f));
  const V power = exponent_(add_(magnitude, mul_(exponent_(magnitude), constant_(v, 0.5f))));
  const V small = select_(less_(magnitude, constant_(v, 0.125f)), constant_(v, 0.0f), constant_(v, 0.25f));
  return select_(less_(magnitude, constant_(v, 0.25f)), small, min_(power, constant_(v, 16.0f)));
}

// ---- codes of engines that compute ranges from the numbers ----

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

// ---- torchao's NVFP4 ----

/// s = e4m3(clamp(fl(amax / 6) / p, 2^-6, 448)), with p the scale of the tensor. The smallest s is a normal
/// number.
template <class V>
FQ_HD V torchao_nvfp4_scale(V amax, V per_tensor) {
  const V ratio = div_(div_(amax, constant_(amax, 6.0f)), per_tensor);
  return round_e4m3(clamp_min(ratio, constant_(amax, 0x1p-6f)));
}

#ifdef FQ_FORMULAS_VECTOR
}  // namespace fq::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#else
}  // namespace fq::scalar
#endif

#endif  // toggle
