#pragma once

/// What the simulated device has been asked for, for tests that know it only where they are linked to it.

#include <cstdint>

namespace fq::simulated {

/// Launches of kernels, waits and launches of graphs since the process began.
struct Counts {
  std::int64_t launches, waits, graphs;
};
[[nodiscard]] Counts counts();

}  // namespace fq::simulated
