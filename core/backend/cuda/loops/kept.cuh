#pragma once

/// Work of whole blocks, as for_blocks has it, whose threads keep numbers between phases: in registers, where
/// arrays are indexed by constants alone.
///
/// Tests that have no GPU take another file in this one's place.

#include "fakequant/core/backend/cuda/loops/launch.cuh"

namespace fq::cuda {
namespace detail {

template <class Body, int... Phase>
__global__ void __launch_bounds__(block_threads)
    keeping_kernel(const Body body, std::integer_sequence<int, Phase...>) {
  __shared__ typename Body::Shared shared;
  typename Body::Kept kept;
  const Thread thread{blockIdx.x, gridDim.x, static_cast<int>(threadIdx.x)};
  ((body.template phase<Phase>(thread, shared, kept), __syncthreads()), ...);
}

template <class Body, int... Phase>
void launch_keeping(Device device, std::int64_t blocks, const Body& body,
                    std::integer_sequence<int, Phase...> phases) {
  launch_kernel(&keeping_kernel<Body, Phase...>, device, blocks, body, phases);
}

}  // namespace detail

/// body.phase<p>(thread, shared, kept): `Body::Kept`, of trivial type, is the thread's own.
template <class Body>
void for_blocks_keeping(Device device, std::int64_t blocks, Body body) {
  if (blocks <= 0) return;
  if (blocks > most_blocks) throw ArgumentError("[cuda] more blocks than a launch may have");
  detail::launch_keeping(device, blocks, body, std::make_integer_sequence<int, Body::phases>{});
}

}  // namespace fq::cuda
