#pragma once

/// The caching allocator of host memory: 2 MiB aligned blocks on huge pages, size-class free lists.
/// Blocks are reused, not returned, so that a training step after the first asks nothing of the system
/// (a fresh 13 MB activation costs 14 times a reused one).

#include <cstdint>

#include "fakequant/core/device.h"

namespace fq {

/// What the allocator of a device holds, in bytes. On `meta`, what it would have handed out: nothing is asked
/// of the system, and `reserved` and `system_calls` are 0.
struct MemoryStats {
  std::int64_t in_use = 0;        ///< handed out now
  std::int64_t peak = 0;          ///< the largest `in_use` since the last reset
  std::int64_t reserved = 0;      ///< taken from the system
  std::int64_t system_calls = 0;  ///< how often the system was asked
};

/// Of the process, all threads together. Of a CUDA device `system_calls` is 0: its pool asks the driver.
[[nodiscard]] MemoryStats memory_stats(Device device = Device::cpu()) noexcept;
void reset_peak_memory(Device device = Device::cpu()) noexcept;
/// Gives every free block back to the system, and to the GPUs' drivers.
void release_cached_memory() noexcept;

}  // namespace fq
