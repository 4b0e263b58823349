#pragma once

/// Fast division by numbers known before a launch. Plain arithmetic, for host and device.

#include <bit>
#include <cstdint>

#include "fakequant/core/numerics/number_formats.h"

namespace fq::cuda {

/// Returns the upper 32 bits of a product.
FQ_HD std::uint32_t high_word(std::uint32_t a, std::uint32_t b) {
  return FQ_BY_TARGET(__umulhi(a, b), static_cast<std::uint32_t>((std::uint64_t{a} * b) >> 32));
}

/// A separate function, because the code of a 64-bit division is long.
FQ_BY_TARGET(__device__ __noinline__, inline) std::int64_t wide_quotient(std::int64_t a, std::int64_t b) {
  return a / b;
}

/// A positive divisor with a factor that replaces the division: for n below 2^31, floor(n / d) = (n +
/// high_word(n, factor)) >> shift (Granlund and Montgomery, "Division by invariant integers using
/// multiplication", figure 4.1). Larger numbers use a true division.
struct Divisor {
  std::int64_t value = 1;
  std::uint32_t factor = 1;
  int shift = 0;

  Divisor() = default;
  Divisor(std::int64_t divisor) : value(divisor) {
    if (divisor < 1 || divisor >> 31 != 0) return;
    const auto d = static_cast<std::uint64_t>(divisor);
    shift = std::bit_width(d - 1);
    factor = static_cast<std::uint32_t>((((std::uint64_t{1} << shift) - d) << 32) / d + 1);
  }

  /// Returns floor(n / value) for 0 <= n.
  [[nodiscard]] FQ_HD std::int64_t quotient(std::int64_t n) const {
    return ((n | value) >> 31) != 0 ? wide_quotient(n, value) : quotient(static_cast<int>(n));
  }
  /// Returns the quotient for n and value below 2^31.
  [[nodiscard]] FQ_HD int quotient(int n) const {
    const auto low = static_cast<std::uint32_t>(n);
    return static_cast<int>((low + high_word(low, factor)) >> shift);
  }
  /// Divides n in place and returns the remainder.
  FQ_HD std::int64_t take_remainder(std::int64_t& n) const {
    const std::int64_t rest = quotient(n), remainder = n - rest * value;
    n = rest;
    return remainder;
  }
};

}  // namespace fq::cuda
