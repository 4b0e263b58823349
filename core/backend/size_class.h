#pragma once

/// How the blocks of allocators are rounded up.

#include <algorithm>
#include <bit>
#include <cstddef>

namespace fq::detail {

inline constexpr std::size_t block_alignment = 64;

/// Sizes are rounded up to one of 32 steps between powers of two: at most a 32nd of a large block is wasted.
[[nodiscard]] inline std::size_t size_class(std::size_t bytes) {
  if (bytes <= block_alignment) return block_alignment;
  const std::size_t step = std::max(block_alignment, std::bit_floor(bytes - 1) / 32);
  return (bytes + step - 1) / step * step;
}

}  // namespace fq::detail
