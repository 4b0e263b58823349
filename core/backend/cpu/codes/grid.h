#pragma once

/// A Grid unpacked for kernels: one row of numbers per channel.

#include <cstring>
#include <vector>

#include "fakequant/core/backend/cpu/codes/quantize_kernels.h"
#include "fakequant/core/blocks/detail/channels.h"
#include "fakequant/core/numerics/detail/grid_formulas.h"
#include "fakequant/core/quantized.h"

namespace fq::cpu {

inline std::vector<GridRow> grid_rows(const Grid& grid) {
  const auto* scale = grid.scale.data<float>();
  const auto* amax = grid.amax.data<float>();
  const auto format = detail::GridFormat::of(grid.format);
  std::vector<GridRow> rows(static_cast<std::size_t>(grid.amax.numel()));
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = detail::grid_row(format, scale[i], amax[i]);
  return rows;
}

/// Stores a code given as its float value.
inline void store_code(void* codes, DType dtype, std::int64_t i, float value) {
  switch (dtype) {
    case DType::i8:
      static_cast<std::int8_t*>(codes)[i] = static_cast<std::int8_t>(value);
      break;
    case DType::u8:
      static_cast<std::uint8_t*>(codes)[i] = static_cast<std::uint8_t>(value);
      break;
    case DType::i16:
      static_cast<std::int16_t*>(codes)[i] = static_cast<std::int16_t>(value);
      break;
    case DType::i32:
      static_cast<std::int32_t*>(codes)[i] = static_cast<std::int32_t>(value);
      break;
    default:
      static_cast<std::uint8_t*>(codes)[i] = scalar::encode_e4m3(value);
      break;
  }
}

inline float load_code(const void* codes, DType dtype, std::int64_t i) {
  switch (dtype) {
    case DType::i8:
      return static_cast<float>(static_cast<const std::int8_t*>(codes)[i]);
    case DType::u8:
      return static_cast<float>(static_cast<const std::uint8_t*>(codes)[i]);
    case DType::i16:
      return static_cast<float>(static_cast<const std::int16_t*>(codes)[i]);
    case DType::i32:
      return static_cast<float>(static_cast<const std::int32_t*>(codes)[i]);
    default:
      return scalar::decode_e4m3(static_cast<const std::uint8_t*>(codes)[i]);
  }
}

}  // namespace fq::cpu
