#pragma once

/// The GPU of tests: the machine's, or the simulated one in programs linked to it.

#include <cstdlib>

#include <gtest/gtest.h>

#include "fakequant/core/backend/cuda/runtime/runtime.h"
#include "fakequant/core/device.h"

namespace fq::test {
/// How often work was launched on the device, graphs were, and the host has waited for it.
inline std::int64_t launches_so_far() { return cuda::counts().launches; }
inline std::int64_t graphs_so_far() { return cuda::counts().graphs; }
inline std::int64_t waits_so_far() { return cuda::counts().waits; }
}  // namespace fq::test

/// Ends the test where there is no GPU: as skipped, or as failed with FAKEQUANT_REQUIRE_CUDA=1.
#define FQ_NEEDS_CUDA()                                                                                \
  if (fq::cuda_device_count() == 0) {                                                                  \
    const char* required = std::getenv("FAKEQUANT_REQUIRE_CUDA");                                      \
    if (required != nullptr && *required == '1') FAIL() << "FAKEQUANT_REQUIRE_CUDA=1: none is usable"; \
    GTEST_SKIP() << "SKIPPED: there is no GPU";                                                        \
  }                                                                                                    \
  static_assert(true)
