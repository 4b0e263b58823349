#pragma once

/// Codes of one scale to floats, for every vector instruction set, chosen when the program runs. Any number
/// of elements; results have the bits of the scalar formulas.

#include <cstdint>

#include "fakequant/core/dtype.h"

namespace fq::cpu {

/// An element that is a byte of E4M3.
struct E4m3 {
  std::uint8_t byte;
};

/// An array of i8, u8, i16, i32 or f8_e4m3.
struct CodeArray {
  const void* data;
  DType dtype;

  /// From element i on.
  [[nodiscard]] CodeArray from(std::int64_t i) const {
    return {static_cast<const std::byte*>(data) + i * bit_width(dtype) / 8, dtype};
  }
};

/// y = fl(code * scale); a scale of 1 gives the value of the code.
void dequantize(const CodeArray& codes, std::int64_t count, float scale, float* y);
/// y = the value of the code, exact: i8, u8 or f8_e4m3.
void decode(const CodeArray& codes, std::int64_t count, bfloat16* y);

}  // namespace fq::cpu
