#pragma once

/// The four kernels used by every launch in this folder, and their launch on a device's stream. Tests
/// without a GPU replace only this file.

#include <array>
#include <atomic>
#include <utility>

#include "fakequant/core/backend/cuda/loops/launch_shape.h"
#include "fakequant/core/backend/cuda/runtime/check.h"
#include "fakequant/core/backend/cuda/runtime/runtime.h"
#include "fakequant/core/backend/cuda/runtime/stream.h"

namespace fq::cuda::loops {

template <class Body>
__global__ void __launch_bounds__(block_threads) items_kernel(const Body body, std::int64_t items) {
  run_items(body, items, {blockIdx.x, gridDim.x, static_cast<int>(threadIdx.x)});
}

template <class Body, int... Phase>
__global__ void __launch_bounds__(block_threads)
    phases_kernel(const Body body, std::integer_sequence<int, Phase...>) {
  __shared__ typename Body::Shared shared;
  const Thread thread{blockIdx.x, gridDim.x, static_cast<int>(threadIdx.x)};
  ((body.template phase<Phase>(thread, shared), __syncthreads()), ...);
}

template <class Body, int... Phase>
__global__ void __launch_bounds__(block_threads)
    keeping_kernel(const Body body, std::integer_sequence<int, Phase...>) {
  __shared__ typename Body::Shared shared;
  typename Body::Kept kept;
  const Thread thread{blockIdx.x, gridDim.x, static_cast<int>(threadIdx.x)};
  ((body.template phase<Phase>(thread, shared, kept), __syncthreads()), ...);
}

/// Runs a phase that ends with a barrier of the block or of the warp.
template <bool whole_block, class F>
__device__ __forceinline__ void run_joined(const F& phase) {
  phase();
  if constexpr (whole_block)
    __syncthreads();
  else
    __syncwarp();
}

/// Returns the current thread. Each phase calls it. With `read_again`, the compiler computes addresses in the
/// phase and does not keep the addresses of all phases in registers.
template <bool read_again>
__device__ __forceinline__ Thread current_thread() {
  int index = static_cast<int>(threadIdx.x);
  if constexpr (read_again) asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
  return {blockIdx.x, gridDim.x, index};
}

template <class Body, int... Step, int... Last>
__device__ __forceinline__ void run_steps(
    const Body& body, typename Body::Shared& shared,
    const PhaseLists<std::integer_sequence<int, Step...>, std::integer_sequence<int, Last...>>&) {
  constexpr bool several = sizeof...(Step) > 1;
  typename Body::Kept kept;
  run_joined<true>([&] { body.begin(current_thread<several>(), shared, kept); });
  const int steps = body.steps(shared);
  for (int i = 0; i < steps; ++i)
    (run_joined<Body::block_barriers[Step]>(
         [&] { body.template step<Step>(current_thread<several>(), shared, kept, i); }),
     ...);
  (run_joined<false>([&] { body.template end<Last>(current_thread<several>(), shared, kept); }), ...);
}

template <class Body, class Phases>
__global__ void __launch_bounds__(Body::threads, Body::least_blocks)
    steps_kernel(const Body body, Phases phases) {
  extern __shared__ uint4 memory[];
  run_steps(body, *reinterpret_cast<typename Body::Shared*>(memory), phases);
}

template <class First, class Second>
void launch_kernel(void (*kernel)(First, Second), Device device, std::int64_t blocks,
                   std::remove_const_t<First> first, Second second, int threads = block_threads,
                   std::size_t shared_bytes = 0) {
  void* arguments[] = {&first, &second};
  count_launch();
  FQ_CUDA(cudaLaunchKernel(reinterpret_cast<const void*>(kernel), dim3(static_cast<unsigned>(blocks)),
                           dim3(static_cast<unsigned>(threads)), arguments, shared_bytes,
                           device_stream(device)));
}

/// Returns the number of blocks of the items kernel that run concurrently on the device.
template <class Body>
std::int64_t resident_blocks(Device device) {
  static std::array<std::atomic<int>, max_devices> known{};  // GPUs of one machine may differ
  std::atomic<int>& blocks = known.at(static_cast<std::size_t>(device.index));
  if (blocks == 0) {
    static_cast<void>(device_stream(device));  // makes it the current device, which CUDA queries
    int found = 1;
    FQ_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&found, &items_kernel<Body>, block_threads, 0));
    blocks = found;
  }
  return std::int64_t{blocks} * processors(device);
}

template <class Body>
void launch_items(Device device, std::int64_t blocks, const Body& body, std::int64_t items) {
  launch_kernel(&items_kernel<Body>, device, blocks, body, items);
}

template <class Body, int... Phase>
void launch_phases(Device device, std::int64_t blocks, const Body& body,
                   std::integer_sequence<int, Phase...> phases) {
  launch_kernel(&phases_kernel<Body, Phase...>, device, blocks, body, phases);
}

template <class Body, int... Phase>
void launch_keeping(Device device, std::int64_t blocks, const Body& body,
                    std::integer_sequence<int, Phase...> phases) {
  launch_kernel(&keeping_kernel<Body, Phase...>, device, blocks, body, phases);
}

template <class Body, class Phases>
void launch_steps(Device device, std::int64_t blocks, const Body& body, Phases phases) {
  static std::array<std::atomic<bool>, max_devices> known{};
  const auto kernel = &steps_kernel<Body, Phases>;
  constexpr std::size_t bytes = sizeof(typename Body::Shared);
  static_assert(bytes <= 99 * 1024, "more than every GPU gives a block");
  std::atomic<bool>& allowed = known.at(static_cast<std::size_t>(device.index));
  if (!allowed) {  // more than 48 KB must be requested, once per device
    static_cast<void>(device_stream(device));
    FQ_CUDA(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                 cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
    allowed = true;
  }
  launch_kernel(kernel, device, blocks, body, phases, Body::threads, bytes);
}

}  // namespace fq::cuda::loops
