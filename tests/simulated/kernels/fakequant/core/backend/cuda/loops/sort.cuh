#pragma once

/// The library's sorts by CUB, for the simulated device.

#include <thrust/copy.h>
#include <thrust/sort.h>

#include "fakequant/core/backend/cuda/loops/reduce.cuh"
#include "fakequant/core/backend/cuda/loops/sorted.h"

namespace fq::cuda {

inline void sort_pairs(Device device, const KeyedPairs& pairs, std::int64_t count, int bits) {
  loops::enqueue_work(device, [=](const auto& policy) {
    const std::uint32_t counted = bits >= 32 ? ~0u : (1u << bits) - 1;
    thrust::copy_n(policy, pairs.keys, count, pairs.sorted_keys);
    thrust::copy_n(policy, pairs.values, count, pairs.sorted_values);
    thrust::stable_sort_by_key(
        policy, pairs.sorted_keys, pairs.sorted_keys + count, pairs.sorted_values,
        [=](std::uint32_t a, std::uint32_t b) { return (a & counted) < (b & counted); });
  });
}

}  // namespace fq::cuda
