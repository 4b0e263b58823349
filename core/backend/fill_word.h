#pragma once

/// Elements as words of their width, for what moves them and computes nothing.

#include <bit>
#include <cstdint>

#include "fakequant/core/dtype.h"

namespace fq::detail {

/// Calls `f` with the word that `value` is in f32 and f64; with 0 of other types, of 8, 16, 32 or 64 bits.
template <class F>
void visit_fill_word(DType dtype, double value, F&& f) {
  if (dtype == DType::f32) return f(std::bit_cast<std::uint32_t>(static_cast<float>(value)));
  if (dtype == DType::f64) return f(std::bit_cast<std::uint64_t>(value));
  switch (bit_width(dtype)) {
    case 8:
      return f(std::uint8_t{0});
    case 16:
      return f(std::uint16_t{0});
    case 32:
      return f(std::uint32_t{0});
    default:
      return f(std::uint64_t{0});
  }
}

}  // namespace fq::detail
