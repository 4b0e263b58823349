#pragma once

/// Element types of tensors.
///
///     const std::int64_t bytes = byte_size(DType::i4, 5);  // 3: two codes a byte
///     const DType type = dtype_from_name("f8_e4m3");
///     static_assert(cpp_dtype<float> == DType::f32);
///
/// Types of fewer than 8 bits are packed, low bits first: two codes per byte for i4, u4 and f4_e2m1, four
/// for i2 and u2, eight for u1 (masks). Floats of 8 and 4 bits and integers below 8 bits are for storage
/// only: operators decode them. `pack_codes` and `unpack_codes` (core/quantized.h) convert between packed
/// codes and one code per byte.

#include <cstdint>
#include <string_view>
#include <type_traits>

#include "fakequant/core/numerics/number_formats.h"

namespace fq {

/// Element types. Parameters and activations are f32, or f64 if exactness matters more than time. f16 and
/// bf16 are for storage and for the functions of reference/ that compute in them. `name` returns the name of
/// a type, `cpp_dtype` the type of a C++ type.
enum class DType : std::uint8_t {
  f32,
  f64,
  f16,
  bf16,  // arithmetic and its 16-bit storage
  i8,
  u8,
  i16,
  u16,
  i32,
  i64,  // codes, sums, labels
  u1,   // masks, packed
  i2,
  u2,
  i4,
  u4,  // storage only, packed, two's complement for i2 and i4
  f8_e4m3,
  f8_e5m2,
  f8_e8m0,
  f4_e2m1  // storage only; OCP OFP8 and MX v1.0 encodings
};

/// Name in files and messages: "f32", "i8", "f8_e4m3", ...
[[nodiscard]] std::string_view name(DType dtype) noexcept;
/// Returns the type with this name. Throws ArgumentError that lists the names.
[[nodiscard]] DType dtype_from_name(std::string_view name);
/// Bits of one element: 1, 2, 4, 8, 16, 32 or 64.
[[nodiscard]] int bit_width(DType dtype) noexcept;
/// Bytes of `count` contiguous elements, rounded up to whole bytes.
[[nodiscard]] std::int64_t byte_size(DType dtype, std::int64_t count) noexcept;
/// Whether the type is f32, f64, f16 or bf16, the floats with arithmetic.
[[nodiscard]] bool is_floating(DType dtype) noexcept;
/// Whether the type has fewer than 8 bits or is an 8-bit float. Its elements are codes whose values are in a
/// table.
[[nodiscard]] bool is_storage_only(DType dtype) noexcept;

namespace detail {
template <class T>
consteval DType cpp_dtype() {
  if constexpr (std::is_same_v<T, float>)
    return DType::f32;
  else if constexpr (std::is_same_v<T, double>)
    return DType::f64;
  else if constexpr (std::is_same_v<T, float16>)
    return DType::f16;
  else if constexpr (std::is_same_v<T, bfloat16>)
    return DType::bf16;
  else if constexpr (std::is_same_v<T, std::int8_t>)
    return DType::i8;
  else if constexpr (std::is_same_v<T, std::uint8_t>)
    return DType::u8;
  else if constexpr (std::is_same_v<T, std::int16_t>)
    return DType::i16;
  else if constexpr (std::is_same_v<T, std::uint16_t>)
    return DType::u16;
  else if constexpr (std::is_same_v<T, std::int32_t>)
    return DType::i32;
  else if constexpr (std::is_same_v<T, std::int64_t>)
    return DType::i64;
}
}  // namespace detail

/// The DType of a C++ element type (float, double, float16, bfloat16 and integers): `cpp_dtype<float> ==
/// DType::f32`.
template <class T>
inline constexpr DType cpp_dtype = detail::cpp_dtype<std::remove_const_t<T>>();

}  // namespace fq
