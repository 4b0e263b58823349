#pragma once

/// What the devices have been asked for since the process began. For tests that nothing waits, or that a
/// graph is launched; in builds without CUDA all are 0.

#include <cstdint>

namespace fq::cuda {

struct Counts {
  std::int64_t launches, waits, graphs;  ///< of own kernels, by the host, and of graphs
};
[[nodiscard]] Counts counts() noexcept;

void count_launch() noexcept;
void count_wait() noexcept;
void count_graph() noexcept;

}  // namespace fq::cuda
