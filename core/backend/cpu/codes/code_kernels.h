#pragma once

/// Conversion of codes with one scale to floats, compiled for every vector instruction set and selected at
/// run time. Processes any number of elements, with the bits of the scalar formulas.

#include <cstdint>

#include "fakequant/core/dtype.h"

namespace fq::cpu {

/// An element of one E4M3 byte.
struct E4m3 {
  std::uint8_t byte;
};

/// An array of i8, u8, i16, i32 or f8_e4m3.
struct CodeArray {
  const void* data;
  DType dtype;

  /// Returns the array beginning with element i.
  [[nodiscard]] CodeArray from(std::int64_t i) const {
    return {static_cast<const std::byte*>(data) + i * bit_width(dtype) / 8, dtype};
  }
};

/// Computes y = fl(code * scale). A scale of 1 gives the value of the code.
void dequantize(const CodeArray& codes, std::int64_t count, float scale, float* y);
/// Computes y = the exact value of the code, for i8, u8 or f8_e4m3.
void decode(const CodeArray& codes, std::int64_t count, bfloat16* y);

}  // namespace fq::cpu
