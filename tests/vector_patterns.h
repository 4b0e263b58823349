#pragma once

/// Shared code of tests of vector kernels: all instruction sets, and floats of all kinds.

#include <bit>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fakequant/core/backend/cpu/codes/quantize_kernels.h"

namespace fq {

/// Runs f for every instruction set of this processor that was compiled.
template <class F>
void run_on_every_target(F&& f) {
  const auto targets = cpu::vector_targets();
  ASSERT_FALSE(targets.empty());
  for (const std::int64_t target : targets) {
    cpu::use_vector_target(target);
    f(target);
  }
  cpu::use_vector_target(0);
}

/// Every 4099th bit pattern, infinities, NaN, subnormals, zeros and the neighbourhood of ties.
inline std::vector<float> patterns() {
  std::vector<float> out;
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += 4099)
    out.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  for (int k = -600; k <= 600; ++k)
    for (const float nudge : {-1e-7f, 0.0f, 1e-7f})
      out.push_back(static_cast<float>(k) * 0.25f * (1.0f + nudge));
  const float inf = std::numeric_limits<float>::infinity();
  for (const float v : {inf, -inf, std::numeric_limits<float>::quiet_NaN(), 0x1p-149f, -0x1p-149f, 0.0f,
                        -0.0f, 0x1p23f, -0x1.fffffep22f, 3.4028235e38f})
    out.push_back(v);
  out.resize(out.size() / 16 * 16);
  return out;
}

inline bool bit(const std::vector<std::uint8_t>& mask, std::size_t i) {
  return ((mask[i / 8] >> (i % 8)) & 1) != 0;
}

/// Equal bits, or both NaN.
inline bool same_number(float a, float b) {
  return (a != a && b != b) || std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

/// Values and packed mask against the expected ones; names the first element that differs.
inline void expect_same(const std::vector<float>& x, const std::vector<float>& y, const std::uint8_t* mask,
                        const std::vector<float>& expected, const std::vector<bool>& passes,
                        const std::string& where) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    const bool bit = ((mask[i / 8] >> (i % 8)) & 1) != 0;
    if (same_number(y[i], expected[i]) && bit == passes[i]) continue;
    FAIL() << x[i] << " gives " << y[i] << " with mask " << bit << ", not " << expected[i] << " with "
           << passes[i] << ", element " << i << " of " << where;
  }
}

}  // namespace fq
