#pragma once

/// Times of work on a GPU, by events on its stream.

#include <functional>

#include "fakequant/core/device.h"

namespace fq::bench {

/// Calls of both sides in turn, A B B A a round, each batch long enough that events resolve it.
struct Pair {
  double ours, theirs;  ///< seconds a call, medians over the rounds
};
[[nodiscard]] Pair time_pair(Device device, const std::function<void()>& ours,
                             const std::function<void()>& theirs, int rounds);

/// Returns a function that copies `bytes` bytes on the device: it reads and writes each byte once.
[[nodiscard]] std::function<void()> device_copy(Device device, std::int64_t bytes);
/// Bytes of the last cache.
[[nodiscard]] std::int64_t cache_bytes(Device device);
/// Driver and runtime, as 12040, and the clocks in MHz now.
struct Setup {
  int driver, runtime, clock_mhz, memory_clock_mhz;
};
[[nodiscard]] Setup device_setup(Device device);

}  // namespace fq::bench
