#pragma once

/// The memory of the host: 2 MiB aligned blocks on huge pages, free lists by size class
/// (core/detail/allocator.h).

#include <cstddef>

#include "fakequant/core/detail/allocator.h"

namespace fq::cpu {

/// At least `bytes` bytes, 64-byte aligned, contents unspecified. Throws SystemError when memory is short.
[[nodiscard]] void* allocate(std::size_t bytes, Device device);
void deallocate(void* pointer, std::size_t bytes, Device device) noexcept;
[[nodiscard]] MemoryStats memory_stats(Device device) noexcept;
void reset_peak_memory(Device device) noexcept;
void release_cached_memory() noexcept;
void fill_bytes(void* pointer, int value, std::size_t bytes, Device device);
void copy_bytes(void* to, Device to_device, const void* from, Device from_device, std::size_t bytes);

/// Tests set it: every block handed out is filled with 0xff bytes, so that floats never written are NaN.
void set_poison(bool on) noexcept;

}  // namespace fq::cpu
