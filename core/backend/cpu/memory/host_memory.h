#pragma once

/// Size classes of the allocators' blocks.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <vector>

#include "fakequant/core/backend/kernel_columns.h"

namespace fq::detail {

inline constexpr std::size_t block_alignment = 64;

/// Rounds a size up to one of 32 steps between powers of two: at most a 32nd of a large block is wasted.
[[nodiscard]] inline std::size_t size_class(std::size_t bytes) {
  if (bytes <= block_alignment) return block_alignment;
  const std::size_t step = std::max(block_alignment, std::bit_floor(bytes - 1) / 32);
  return (bytes + step - 1) / step * step;
}

}  // namespace fq::detail

// Memory of the host: 2 MiB aligned blocks on huge pages, with free lists by size class (core/device.h).

namespace fq::cpu {

/// For tests: fills every allocated block with 0xff bytes. Floats that were never written are then NaN.
void set_poison(bool on) noexcept;

template <class T>
struct ArenaAllocator {
  using value_type = T;

  ArenaAllocator() = default;
  template <class Other>
  ArenaAllocator(const ArenaAllocator<Other>&) {}
  [[nodiscard]] T* allocate(std::size_t count) {
    return static_cast<T*>(cpu::allocate(count * sizeof(T), Device::cpu()));
  }
  void deallocate(T* pointer, std::size_t count) noexcept {
    cpu::deallocate(pointer, count * sizeof(T), Device::cpu());
  }
  friend bool operator==(const ArenaAllocator&, const ArenaAllocator&) { return true; }
};

/// A vector in tensor memory: aligned to a cache line, and reused without system calls.
template <class T>
using ArenaVector = std::vector<T, ArenaAllocator<T>>;

}  // namespace fq::cpu
