#pragma once

/// Division of a launch into blocks and threads. Plain arithmetic, for host and device.

#include <algorithm>
#include <cstdint>

#include "fakequant/core/numerics/number_formats.h"

namespace fq::cuda {

inline constexpr int block_threads = 256;
/// Maximum number of blocks of a launch.
inline constexpr std::int64_t most_blocks = (std::int64_t{1} << 31) - 1;

/// Returns the number of blocks of `block_threads` threads for `items` items: at least 1 and at most
/// `resident`, the number that runs concurrently. Each thread processes every `step()`-th item.
[[nodiscard]] constexpr std::int64_t grid_blocks(std::int64_t items, std::int64_t resident) noexcept {
  const std::int64_t wanted = items / block_threads + (items % block_threads != 0 ? 1 : 0);
  return std::clamp<std::int64_t>(wanted, 1, std::clamp<std::int64_t>(resident, 1, most_blocks));
}

/// One thread of a launch.
struct Thread {
  std::int64_t block, blocks;
  int thread;  ///< index in the block

  /// Index of the thread's first item, and the distance between its items.
  [[nodiscard]] FQ_HD std::int64_t first() const { return block * block_threads + thread; }
  [[nodiscard]] FQ_HD std::int64_t step() const { return blocks * block_threads; }
};

namespace loops {
/// Numbers of the phases of a launch: repeated ones, and those at the end.
template <class Step, class Last>
struct PhaseLists {};
}  // namespace loops

/// Runs the thread's share of body(i), 0 <= i < items.
template <class Body>
FQ_HD void run_items(const Body& body, std::int64_t items, Thread thread) {
  for (std::int64_t i = thread.first(); i < items; i += thread.step()) body(i);
}

}  // namespace fq::cuda
