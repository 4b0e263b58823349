#pragma once

/// Sorts, by CUB: a header of its own, as who includes it compiles all kernels of a sort.
///
/// Tests that have no GPU take another file in this one's place: the same calls, by Thrust on the host.

#include <cub/device/device_radix_sort.cuh>

#include "fakequant/core/backend/cuda/loops/reduce.cuh"
#include "fakequant/core/backend/cuda/loops/sorted.h"

namespace fq::cuda {

/// The pairs in the order of their keys, of which the lowest `bits` count; pairs of one key stay in order.
inline void sort_pairs(Device device, const KeyedPairs& pairs, std::int64_t count, int bits) {
  loops::with_scratch(device, [=](void* scratch, std::size_t& bytes, cudaStream_t stream) {
    return cub::DeviceRadixSort::SortPairs(scratch, bytes, pairs.keys, pairs.sorted_keys, pairs.values,
                                           pairs.sorted_values, count, 0, bits, stream);
  });
}

}  // namespace fq::cuda
