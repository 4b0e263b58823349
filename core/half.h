#pragma once

/// Two 16-bit storage types. They hold bits; arithmetic happens in float.
/// Conversions round to nearest even, keep infinities, quiet every NaN and keep subnormals.

#include <bit>
#include <cstdint>

namespace fq {

/// IEEE 754 binary16.
struct float16 {
  std::uint16_t bits = 0;
  float16() = default;
  explicit float16(float value) noexcept;
  explicit operator float() const noexcept;
};

/// The upper half of an IEEE 754 binary32.
struct bfloat16 {
  std::uint16_t bits = 0;
  bfloat16() = default;
  explicit bfloat16(float value) noexcept {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const bool nan = (word & 0x7fffffffu) > 0x7f800000u;
    bits = static_cast<std::uint16_t>(nan ? (word >> 16) | 0x40u : (word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
  }
  explicit operator float() const noexcept {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
};

inline float16::float16(float value) noexcept {
  const auto word = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (word >> 16) & 0x8000u;
  const std::uint32_t magnitude = word & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    bits = static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x1ffu));
  } else if (magnitude >= 0x477ff000u) {  // 65520 and above round to infinity
    bits = static_cast<std::uint16_t>(sign | 0x7c00u);
  } else if (magnitude >= 0x38800000u) {
    const std::uint32_t rebased = magnitude - 0x38000000u;
    bits = static_cast<std::uint16_t>(sign | ((rebased + 0xfffu + ((rebased >> 13) & 1u)) >> 13));
  } else {  // subnormal: adding 0.5 lets the float adder align and round the significand
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    bits = static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u));
  }
}

inline float16::operator float() const noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t magnitude = bits & 0x7fffu;
  if (magnitude >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(scaled));
}

}  // namespace fq
