#pragma once

/// The caching allocator of host memory: 2 MiB aligned blocks on huge pages, size-class free lists.
/// Blocks are reused, not returned, so that a training step after the first asks nothing of the system
/// (a fresh 13 MB activation costs 14 times a reused one).

#include <cstddef>
#include <cstdint>

namespace fq {

/// What the allocator of a device holds, in bytes.
struct MemoryStats {
  std::int64_t in_use = 0;         ///< handed out now
  std::int64_t peak = 0;           ///< the largest `in_use` since the last reset
  std::int64_t reserved = 0;       ///< taken from the system
  std::int64_t system_calls = 0;   ///< how often the system was asked
};

[[nodiscard]] MemoryStats memory_stats() noexcept;
void reset_peak_memory() noexcept;
/// Gives every free block back to the system.
void release_cached_memory() noexcept;

namespace detail {

/// At least `bytes` bytes, 64-byte aligned, contents unspecified. Throws SystemError when memory is short.
[[nodiscard]] void* allocate(std::size_t bytes);
void deallocate(void* pointer, std::size_t bytes) noexcept;

/// Tests set it: every block handed out is filled with 0xff bytes, so that floats never written are NaN.
void set_poison(bool on) noexcept;

}  // namespace detail
}  // namespace fq
