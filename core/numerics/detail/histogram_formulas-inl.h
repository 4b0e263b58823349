// The calibration formulas, each written once for a value type V that is a float or a vector of floats:
// histogram bins, and errors of fake quantization by a candidate range. Include
// core/numerics/detail/formulas-inl.h first; this file is included in the same way, hence no pragma once.
// Not a public header.

#if defined(FQ_CALIB_FORMULAS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef FQ_CALIB_FORMULAS_INL_H
#undef FQ_CALIB_FORMULAS_INL_H
#else
#define FQ_CALIB_FORMULAS_INL_H
#endif

#ifdef FQ_FORMULAS_VECTOR
HWY_BEFORE_NAMESPACE();
namespace fq::HWY_NAMESPACE {
#else
namespace fq::scalar {
#endif

/// The bin of |x| before truncation to an integer: fl(fl(|x| * factor) / divisor), at most `last`. Returns
/// `dropped` for magnitudes below `lowest` and above `top`.
template <class V>
FQ_HD V bin_position(V x, V factor, V divisor, V lowest, V top, V last, V dropped) {
  const V v = abs_(x);
  const V position = min_(div_(mul_(v, factor), divisor), last);
  return select_(and_(less_equal_(lowest, v), less_equal_(v, top)), position, dropped);
}

/// The error y - x of ModelOpt's integers with codes `low` .. `bound`.
template <class V>
struct IntegerCandidate {
  V lower, upper, scale, divisor, inverse;

  FQ_HD IntegerCandidate(V amax, float low, float bound)
      : lower(constant_(amax, low)),
        upper(constant_(amax, bound)),
        scale(modelopt_scale(amax, upper, true)),
        divisor(modelopt_divisor(amax, scale, true)),
        inverse(div_(constant_(amax, 1.0f), divisor)) {}
  /// Requires divides_exactly(divisor).
  FQ_HD V error(V x) const {
    return sub_(divide_code(modelopt_code(x, scale, lower, upper), divisor, inverse), x);
  }
};
template <class V>
struct DividedCandidate : IntegerCandidate<V> {
  FQ_HD DividedCandidate(V amax, float low, float bound) : IntegerCandidate<V>(amax, low, bound) {}
  FQ_HD V error(V x) const {
    return sub_(modelopt_fake_quant(x, this->scale, this->divisor, this->lower, this->upper), x);
  }
};

/// The error as a fraction of a step. It has few bits, so it is rounded no more than the difference of y and
/// x. Without `clipped`, |x| <= amax is required.
template <class V, bool clipped>
struct CodeCandidate {
  static constexpr float most_codes = 255;
  V scale, lower, upper;

  FQ_HD V error(V x) const {
    const V position = mul_(x, scale);
    if constexpr (clipped) return sub_(modelopt_code(x, scale, lower, upper), position);
    return sub_(rint_(position), position);
  }
};

template <class V>
struct E4m3Candidate {
  V scale, inverse;

  FQ_HD E4m3Candidate(V amax, float, float)
      : scale(modelopt_e4m3_scale(amax)), inverse(div_(constant_(amax, 1.0f), scale)) {}
  FQ_HD V error(V x) const { return sub_(modelopt_scaled_e4m3(x, scale, inverse), x); }
};

template <class V>
struct Fp4Candidate {
  V scale, divisor;

  FQ_HD Fp4Candidate(V amax, float, float bound)
      : scale(div_(amax, constant_(amax, bound))), divisor(fp4_divisor(scale)) {}
  FQ_HD V error(V x) const { return sub_(fp4_block_fake_quant(x, scale, divisor), x); }
};

#ifdef FQ_FORMULAS_VECTOR
}  // namespace fq::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#else
}  // namespace fq::scalar
#endif

#endif  // toggle
