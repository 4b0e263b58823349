#pragma once

/// Elements of any type as words of their size, for what only moves them.

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

}  // namespace fq::cuda
