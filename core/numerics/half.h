#pragma once

/// Two 16-bit storage types, the elements of f16 and bf16 tensors. They hold bits; arithmetic happens in
/// float, to and from which they convert when asked for.
///
///     const float16 half(0.1f);                 // the nearest of them
///     const auto back = static_cast<float>(half);
///     Tensor t = Tensor::from<float16>({half, half});
///
/// Conversions round to nearest even, keep infinities and subnormals, and quiet every NaN; on a GPU into its
/// own. What is beyond the largest number becomes infinity: 65504 for float16, 3.39e38 for bfloat16. The
/// functions are inline and run on host and GPU alike.

#include <bit>
#include <cstdint>

#include "fakequant/core/numerics/host_device.h"

namespace fq {

namespace detail {

/// Free of branches, so that loops vectorise.
FQ_HD std::uint16_t f16_bits(float value) noexcept {
  const auto word = std::bit_cast<std::int32_t>(value);
  const std::int32_t magnitude = word & 0x7fffffff;
  const std::int32_t rebased = magnitude - 0x38000000;
  const std::int32_t normal = (rebased + 0xfff + ((rebased >> 13) & 1)) >> 13;
  // Adding 0.5 lets the float adder align and round the significand of what becomes subnormal.
  const float small = std::bit_cast<float>(magnitude < 0x38800000 ? magnitude : 0);
  const std::int32_t subnormal = std::bit_cast<std::int32_t>(small + 0.5f) - 0x3f000000;
  const std::int32_t nan = 0x7e00 | ((magnitude >> 13) & 0x1ff);
  const std::int32_t finite = magnitude < 0x38800000 ? subnormal : normal;
  const std::int32_t beyond = magnitude > 0x7f800000 ? nan : 0x7c00;  // 65520 and above round to infinity
  return static_cast<std::uint16_t>(((word >> 16) & 0x8000) | (magnitude < 0x477ff000 ? finite : beyond));
}

FQ_HD float f16_value(std::uint16_t bits) noexcept {
  const std::int32_t sign = (bits & 0x8000) << 16, magnitude = (bits & 0x7fff) << 13;
  const auto finite = std::bit_cast<std::int32_t>(std::bit_cast<float>(magnitude) * 0x1p112f);
  const std::int32_t special = 0x7f800000 | (magnitude & 0x007fffff);
  return std::bit_cast<float>(sign | (magnitude < 0x0f800000 ? finite : special));
}

FQ_HD std::uint16_t bf16_bits(float value) noexcept {
  const auto word = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t near = word + 0x7fffu + ((word >> 16) & 1u);
  return static_cast<std::uint16_t>((value != value ? word | 0x400000u : near) >> 16);
}

}  // namespace detail

/// IEEE 754 binary16: 5 bits of exponent, 10 of mantissa, 11 significant bits.
struct float16 {
  std::uint16_t bits = 0;
  float16() = default;
  /// The nearest of them, half to even; infinity from 65520 on.
  FQ_HD explicit float16(float value) noexcept {
    FQ_BY_TARGET(asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value)), bits = detail::f16_bits(value));
  }
  /// The same value as a float, exactly.
  FQ_HD explicit operator float() const noexcept {
    float value;
    FQ_BY_TARGET(asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits)), value = detail::f16_value(bits));
    return value;
  }
};

/// The upper half of an IEEE 754 binary32: the range of a float with 8 significant bits.
struct bfloat16 {
  std::uint16_t bits = 0;
  bfloat16() = default;
  /// The nearest of them, half to even.
  FQ_HD explicit bfloat16(float value) noexcept {
    FQ_BY_TARGET(asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value)), bits = detail::bf16_bits(value));
  }
  /// The same value as a float, exactly.
  FQ_HD explicit operator float() const noexcept {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
};

}  // namespace fq
