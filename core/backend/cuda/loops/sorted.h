#pragma once

/// Arrays for sorting on a device.

#include <cstdint>

namespace fq::cuda {

/// Arrays of equal length that do not overlap.
struct KeyedPairs {
  const std::uint32_t *keys, *values;
  std::uint32_t *sorted_keys, *sorted_values;
};

}  // namespace fq::cuda
