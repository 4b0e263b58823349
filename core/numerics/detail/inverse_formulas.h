#pragma once

/// Formulas that multiply by the inverse of a divisor instead of dividing. On GPUs a division takes ten
/// instructions and a call for rare numbers. The bits equal the formulas in `formulas-inl.h` and
/// `histogram_formulas-inl.h` if divides_exactly(d).

#include "fakequant/core/numerics/detail/formulas.h"

namespace fq::scalar {

/// fl(p / d), with inverse = fl(1/d). divide_code's quotient is one of the two floats around p / d; its
/// exact remainder rounds the quotient correctly (Markstein, "Computation of elementary functions on the IBM
/// RISC System/6000 processor", theorem 6). Holds if the quotient is finite and at least 1/8. Smaller
/// quotients stay below 1/8.
FQ_HD float divide_by_inverse(float p, float d, float inverse) {
  const float quotient = divide_code(p, d, inverse);
  return fnma_(fms_(quotient, d, p), inverse, quotient);
}

/// bin_position. `most` is a product whose quotient is at least `last`.
FQ_HD float bin_position_by_inverse(float x, float factor, float divisor, float inverse, float most,
                                    float lowest, float top, float last, float dropped) {
  const float v = abs_(x);
  const float position = min_(divide_by_inverse(min_(mul_(v, factor), most), divisor, inverse), last);
  return select_(and_(less_equal_(lowest, v), less_equal_(v, top)), position, dropped);
}

/// fp4_fake_quant for 2^-80 <= d, with most = fl(6 * d), whose quotient rounds to 6. The quotient of
/// divide_code is on the same side of each rounding boundary of E2M1 as fl(|x| / d), or on the boundary as
/// fl(|x| / d) is. Tested for every significand of d with every number of at most nine bits, and each x
/// within 3 units of their product.
FQ_HD float fp4_fake_quant_by_inverse(float x, float divisor, float inverse, float most) {
  const float magnitude = FQ_BY_TARGET(::fminf(abs_(x), most), min_(abs_(x), most));
  const float quotient = divide_code(magnitude, divisor, inverse);
  const float rounded = mul_(round_to_grid(quotient, 1.0f, 0.5f), divisor);
  return x >= 0.0f ? rounded : -rounded;  // sign as in fp4_signed
}

}  // namespace fq::scalar
