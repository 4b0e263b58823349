#pragma once

/// The triangular factor that GPTQ walks along.

#include <cstdint>
#include <vector>

namespace fq::ptq {

/// The upper triangular U with inverse(h) = U^T U, row-major, of a symmetric positive definite h [n, n]: the
/// inverse of the V with h = V V^T, so that nothing but triangles is inverted. f64. Throws NumericError when
/// h is not positive definite.
[[nodiscard]] std::vector<double> inverse_factor(std::vector<double> h, std::int64_t n);

}  // namespace fq::ptq
