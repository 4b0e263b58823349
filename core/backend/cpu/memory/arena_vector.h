#pragma once

/// Vectors in the memory that tensors have: on a cache line's boundary, and taken again without the system.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "fakequant/core/backend/cpu/memory/host_memory.h"

namespace fq::cpu {

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

template <class T>
using ArenaVector = std::vector<T, ArenaAllocator<T>>;

}  // namespace fq::cpu
