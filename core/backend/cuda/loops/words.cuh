#pragma once

/// Elements of any type as words of their size, and masks as bits in memory order, for what only moves them.

#include "fakequant/core/backend/cuda/loops/launch.cuh"

namespace fq::cuda {

/// Calls f with a word of so many bytes.
template <class F>
void visit_word(int bytes, F&& f) {
  switch (bytes) {
    case 1:
      return f(std::uint8_t{});
    case 2:
      return f(std::uint16_t{});
    case 4:
      return f(std::uint32_t{});
    default:
      return f(std::uint64_t{});
  }
}

FQ_HD bool get_bit(const std::uint8_t* mask, std::int64_t i) { return ((mask[i >> 3] >> (i & 7)) & 1u) != 0; }

}  // namespace fq::cuda
