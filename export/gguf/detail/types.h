#pragma once

/// Constants of the GGUF format.

#include <cstdint>
#include <string_view>

#include "fakequant/export/gguf/file.h"

namespace fq::detail {

inline constexpr std::string_view gguf_magic = "GGUF";
inline constexpr std::uint32_t gguf_version = 3;
inline constexpr std::int64_t gguf_alignment = 32;
inline constexpr std::size_t gguf_longest_name = 63;  ///< of a tensor, in ggml
inline constexpr std::size_t gguf_most_axes = 4;

/// Types of values, with their numbers in the file.
enum class GgufKind : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, text, array, u64, i64, f64 };

/// Number of elements in a block, and its size in bytes.
struct GgufBlock {
  std::int64_t elements, bytes;
};
[[nodiscard]] constexpr GgufBlock gguf_block(GgufType type) noexcept {
  switch (type) {
    case GgufType::f32:
      return {1, 4};
    case GgufType::f16:
      return {1, 2};
    case GgufType::q4_0:
      return {32, 18};
    case GgufType::q8_0:
      break;
  }
  return {32, 34};
}
/// Returns the element type of the data of a tensor.
[[nodiscard]] constexpr DType gguf_dtype(GgufType type) noexcept {
  if (type == GgufType::f32) return DType::f32;
  return type == GgufType::f16 ? DType::f16 : DType::u8;
}
[[nodiscard]] inline Shape gguf_data_shape(GgufType type, const Shape& shape) {
  const GgufBlock block = gguf_block(type);
  if (block.elements == 1) return shape;
  const std::int64_t columns = shape.empty() ? 1 : shape.back();
  return {columns == 0 ? 0 : numel(shape) / columns, columns / block.elements * block.bytes};
}

}  // namespace fq::detail
