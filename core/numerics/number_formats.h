#pragma once

/// Number formats: float16, bfloat16, IntFormat and FloatFormat, and macros for code that runs on host and
/// GPU. FQ_HD marks a function that compiles for the host and, under nvcc, for the device. FQ_BY_TARGET(gpu,
/// host) selects the expression of the target.

#include <bit>
#include <cstdint>

#if defined(__CUDACC__)
#define FQ_HD __host__ __device__ __forceinline__
#else
#define FQ_HD inline
#endif

#if defined(__CUDA_ARCH__)
#define FQ_BY_TARGET(gpu, host) gpu
#else
#define FQ_BY_TARGET(gpu, host) host
#endif

/// Two 16-bit storage types for the elements of f16 and bf16 tensors. Arithmetic requires an explicit
/// conversion to float.
///
///     const float16 half(0.1f);                 // the nearest of them
///     const auto back = static_cast<float>(half);
///     Tensor t = Tensor::from<float16>({half, half});
///
/// Conversions round to nearest even, keep infinities and subnormals, and quiet every NaN (a GPU uses its
/// own NaN). Values beyond the largest number become infinity: 65504 for float16, 3.39e38 for bfloat16. The
/// functions are inline and run on host and GPU.

namespace fq {

namespace detail {

/// Contains no branches, so that loops vectorize.
FQ_HD std::uint16_t f16_bits(float value) noexcept {
  const auto word = std::bit_cast<std::int32_t>(value);
  const std::int32_t magnitude = word & 0x7fffffff;
  const std::int32_t rebased = magnitude - 0x38000000;
  const std::int32_t normal = (rebased + 0xfff + ((rebased >> 13) & 1)) >> 13;
  // Adding 0.5 makes the float adder align and round the significand of subnormal results.
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
  /// Rounds to nearest, half to even; infinity from 65520.
  FQ_HD explicit float16(float value) noexcept {
    FQ_BY_TARGET(asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value)), bits = detail::f16_bits(value));
  }
  /// Converts to float, exactly.
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
  /// Rounds to nearest, half to even.
  FQ_HD explicit bfloat16(float value) noexcept {
    FQ_BY_TARGET(asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value)), bits = detail::bf16_bits(value));
  }
  /// Converts to float, exactly.
  FQ_HD explicit operator float() const noexcept {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
};

/// Number formats of codes. Format (core/format.h) holds one of them, validated.
///
///     const IntFormat weights{.bits = 4, .narrow_range = true};  // -7 .. 7
///     const FloatFormat e5m2{5, 2};                              // up to 57344

/// Integers of 2 to 16 bits. The codes are `lower() .. upper()`, and amax maps to `upper()`. A signed format
/// of full range therefore has one more code below zero than above.
struct IntFormat {
  int bits = 8;               ///< 2 to 16
  bool is_unsigned = false;   ///< codes are not negative
  bool narrow_range = false;  ///< excludes the lowest signed code: -127 .. 127

  /// The smallest code: -128 for signed 8 bits, -127 with narrow_range, 0 for unsigned.
  [[nodiscard]] std::int32_t lower() const noexcept {
    return is_unsigned ? 0 : -(std::int32_t{1} << (bits - 1)) + (narrow_range ? 1 : 0);
  }
  /// The largest code: 127 for signed 8 bits, 255 for unsigned.
  [[nodiscard]] std::int32_t upper() const noexcept {
    return (std::int32_t{1} << (bits - (is_unsigned ? 0 : 1))) - 1;
  }
  friend bool operator==(const IntFormat&, const IntFormat&) = default;
};

/// Minifloats without infinities, with `exponent` and `mantissa` bits and a sign; (4,3) is OCP E4M3. Values
/// round half to even and saturate at the largest value. Subnormals are kept.
struct FloatFormat {
  /// Bits of the exponent and of the mantissa (without the leading one).
  int exponent = 4;
  int mantissa = 3;

  /// The largest finite value: E4M3 gives 448, E5M2 57344, E3M2 28, E2M3 7.5, E2M1 6.
  [[nodiscard]] float max() const noexcept;
  friend bool operator==(const FloatFormat&, const FloatFormat&) = default;
};

}  // namespace fq
