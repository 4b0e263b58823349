#pragma once

/// Formulas with a division, by the inverse of their divisor: for GPUs, whose divisions are ten instructions
/// and a call for rare numbers. They have the bits of those in `formulas-inl.h` and
/// `histogram_formulas-inl.h` wherever divides_exactly(d).

#include "fakequant/core/numerics/detail/formulas.h"

namespace fq::scalar {

/// fl(p / d), inverse = fl(1/d): divide_code's quotient is one of the two floats around p / d, and what is
/// left of it, which is exact, rounds it right (Markstein, "Computation of elementary functions on the IBM
/// RISC System/6000 processor", theorem 6). Where the quotient is finite and at least 1/8; smaller ones stay
/// below that.
FQ_HD float divide_by_inverse(float p, float d, float inverse) {
  const float quotient = divide_code(p, d, inverse);
  return fnma_(fms_(quotient, d, p), inverse, quotient);
}

/// bin_position; `most` is a product whose quotient is `last` or more.
FQ_HD float bin_position_by_inverse(float x, float factor, float divisor, float inverse, float most,
                                    float lowest, float top, float last, float dropped) {
  const float v = abs_(x);
  const float position = min_(divide_by_inverse(min_(mul_(v, factor), most), divisor, inverse), last);
  return select_(and_(less_equal_(lowest, v), less_equal_(v, top)), position, dropped);
}

/// fp4_fake_quant for 2^-80 <= d; most = fl(6 * d), whose quotient is rounded to 6. divide_code of any number
/// lies on the side of the numbers that separate E2M1's, or on them, where fl(|x| / d) does (every
/// significand of d was tried with every number of at most nine bits, and each x within 3 units of their
/// product).
FQ_HD float fp4_fake_quant_by_inverse(float x, float divisor, float inverse, float most) {
  const float magnitude = FQ_BY_TARGET(::fminf(abs_(x), most), min_(abs_(x), most));
  const float quotient = divide_code(magnitude, divisor, inverse);
  const float rounded = mul_(round_to_grid(quotient, 1.0f, 0.5f), divisor);
  return x >= 0.0f ? rounded : -rounded;  // as fp4_signed
}

}  // namespace fq::scalar
