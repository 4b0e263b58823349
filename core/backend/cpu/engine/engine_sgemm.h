#pragma once

/// oneDNN's sgemm, which reads factors in any order as fast; included by engine sources only.

#include "fakequant/core/backend/cpu/engine/engine.h"

namespace fq::cpu {

/// Whether it multiplies these faster than oneDNN's primitive: floats whose sums run across memory, below
/// AVX-512.
[[nodiscard]] bool sgemm_is_faster(const Matrix& a, const Matrix& b);
/// c [m, n], whose rows are `pitch` apart, of the first m rows of a and the first n columns of b. A tall
/// product of two factors across memory is made as its transpose, which takes half the time.
void sgemm(const Matrix& a, const Matrix& b, std::int64_t m, std::int64_t n, float* c, std::int64_t pitch);

}  // namespace fq::cpu
