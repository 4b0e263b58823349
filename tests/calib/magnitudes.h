#pragma once

/// Data for tests of calibrators.

#include <cmath>
#include <random>
#include <vector>

#include "fakequant/core/tensor.h"

namespace fq::test {

/// Values over many powers of two; some zeros, both signs.
inline std::vector<float> magnitudes(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> out(count);
  for (float& v : out) {
    const auto mantissa = static_cast<float>(random() % 20001) - 10000.0f;
    v = random() % 5 == 0 ? 0.0f : std::ldexp(mantissa, static_cast<int>(random() % 12) - 20);
  }
  return out;
}

inline Tensor tensor(const std::vector<float>& v) {
  return Tensor::from(v, {static_cast<std::int64_t>(v.size())});
}

}  // namespace fq::test
