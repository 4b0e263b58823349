#pragma once

/// Runs of an array that are copied to runs of another.

#include <cstdint>

namespace fq::detail {

/// `runs` times `count` bits: run r from bit source + r * step_x to bit target + r * step_y.
struct StridedBits {
  std::int64_t runs, count, source, step_x, target, step_y;

  [[nodiscard]] bool whole_bytes() const { return (source | target | step_x | step_y | count) % 8 == 0; }
};

}  // namespace fq::detail
