#pragma once

/// Sorting by CUB. A separate header, because including it compiles all kernels of a sort.
///
/// Tests without a GPU replace this file by one with the same calls that uses Thrust on the host.

#include <cub/device/device_radix_sort.cuh>

#include "fakequant/core/backend/cuda/loops/reduce.cuh"
#include "fakequant/core/backend/cuda/loops/sorted.h"

namespace fq::cuda {

/// Sorts the pairs by the lowest `bits` bits of their keys. The sort is stable.
inline void sort_pairs(Device device, const KeyedPairs& pairs, std::int64_t count, int bits) {
  loops::with_scratch(device, [=](void* scratch, std::size_t& bytes, cudaStream_t stream) {
    return cub::DeviceRadixSort::SortPairs(scratch, bytes, pairs.keys, pairs.sorted_keys, pairs.values,
                                           pairs.sorted_values, count, 0, bits, stream);
  });
}

}  // namespace fq::cuda
