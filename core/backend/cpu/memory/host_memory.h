#pragma once

/// The memory of the host: 2 MiB aligned blocks on huge pages, free lists by size class
/// (core/detail/allocator.h).

#include <cstddef>
#include <vector>

#include "fakequant/core/backend/kernel_columns.h"

namespace fq::cpu {

/// Tests set it: every block handed out is filled with 0xff bytes, so that floats never written are NaN.
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

/// A vector in the memory of tensors: aligned to a cache line, and reused without calls of the system.
template <class T>
using ArenaVector = std::vector<T, ArenaAllocator<T>>;

}  // namespace fq::cpu
