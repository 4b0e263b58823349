#pragma once

/// The GPU of tests: that of the machine, or the simulated one in programs that have it.

#include <cstdlib>
#include <stdexcept>

#include <gtest/gtest.h>

#include "fakequant/core/device.h"
#include "simulated/counts.h"

namespace fq::simulated {
[[gnu::weak]] Counts counts();  // null in programs that have no simulated device
}

namespace fq::test {
/// Whether launches and waits are counted: on the simulated device, not on a GPU.
inline bool has_counts() { return simulated::counts != nullptr; }
/// How often work was launched on the simulated device, and the host has waited for it. Throws on a GPU,
/// where two counts that are both 0 would be no finding.
inline simulated::Counts counts_so_far() {
  if (!has_counts()) throw std::logic_error("a GPU counts nothing: FQ_NEEDS_COUNTS() or has_counts() first");
  return simulated::counts();
}
inline std::int64_t launches_so_far() { return counts_so_far().launches; }
inline std::int64_t graphs_so_far() { return counts_so_far().graphs; }
inline std::int64_t waits_so_far() { return counts_so_far().waits; }
}  // namespace fq::test

/// Ends the test, as skipped, where nothing is counted.
#define FQ_NEEDS_COUNTS() \
  if (!fq::test::has_counts()) GTEST_SKIP() << "SKIPPED: a GPU counts no launches and waits"

/// Ends the test where there is no GPU: as skipped, or as failed with FAKEQUANT_REQUIRE_CUDA=1.
#define FQ_NEEDS_CUDA()                                                                                \
  if (fq::cuda_device_count() == 0) {                                                                  \
    const char* required = std::getenv("FAKEQUANT_REQUIRE_CUDA");                                      \
    if (required != nullptr && *required == '1') FAIL() << "FAKEQUANT_REQUIRE_CUDA=1: none is usable"; \
    GTEST_SKIP() << "SKIPPED: there is no GPU";                                                        \
  }                                                                                                    \
  static_assert(true)
