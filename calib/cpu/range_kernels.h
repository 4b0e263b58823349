#pragma once

/// Extremes of stretches of floats, for every vector instruction set; not a public header.

#include <cstdint>

namespace fq::cpu {

struct Extremes {
  std::int32_t magnitude = 0;  ///< the largest |x| as bits: a NaN is larger than everything and is found
  float minimum = 0;           ///< unspecified when there is a NaN
};

/// In one pass; `count` at least 1.
[[nodiscard]] Extremes extremes(const float* x, std::int64_t count);
/// out[i] = max(out[i], |x[i]| as bits).
void raise_magnitudes(const float* x, std::int64_t count, std::int32_t* out);

}  // namespace fq::cpu
