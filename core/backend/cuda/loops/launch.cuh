#pragma once

/// Launches of functions of a thread. A body is a struct of numbers and pointers whose call, marked FQ_HD,
/// does one item's work. It may run on the host as well as on the device: `HostRunner` goes through a whole
/// launch, thread by thread, as tests do where there is no GPU.

#include <atomic>
#include <cstring>
#include <utility>

#include "fakequant/core/backend/cuda/loops/host_runner.h"
#include "fakequant/core/backend/cuda/loops/launch_shape.h"
#include "fakequant/core/backend/cuda/runtime/check.h"
#include "fakequant/core/backend/cuda/runtime/stream.h"

namespace fq::cuda {
namespace detail {

template <class Body>
FQ_HD void run_items(const Body& body, std::int64_t items, Thread thread) {
  for (std::int64_t i = thread.first(); i < items; i += thread.step()) body(i);
}

template <class Body>
__global__ void __launch_bounds__(block_threads) items_kernel(const Body body, std::int64_t items) {
  run_items(body, items, {blockIdx.x, gridDim.x, static_cast<int>(threadIdx.x)});
}

template <class Body>
void run_items_on_host(std::int64_t blocks, Order order, void** arguments) {
  const auto& body = *static_cast<const Body*>(arguments[0]);
  const auto items = *static_cast<const std::int64_t*>(arguments[1]);
  in_order(order, blocks * block_threads, [&](std::int64_t t) {
    run_items(body, items, {t / block_threads, blocks, static_cast<int>(t % block_threads)});
  });
}

template <class Body, int... Phase>
__global__ void __launch_bounds__(block_threads)
    phases_kernel(const Body body, std::integer_sequence<int, Phase...>) {
  __shared__ typename Body::Shared shared;
  const Thread thread{blockIdx.x, gridDim.x, static_cast<int>(threadIdx.x)};
  ((body.template phase<Phase>(thread, shared), __syncthreads()), ...);
}

template <class Body, int Phase>
void run_phase(const Body& body, Order order, std::int64_t block, std::int64_t blocks,
               typename Body::Shared& shared) {
  in_order(order, block_threads, [&](std::int64_t t) {
    body.template phase<Phase>(Thread{block, blocks, static_cast<int>(t)}, shared);
  });
}

template <class Body, int... Phase>
void run_phases_on_host(std::int64_t blocks, Order order, void** arguments) {
  const auto& body = *static_cast<const Body*>(arguments[0]);
  in_order(order, blocks, [&](std::int64_t b) {
    typename Body::Shared shared;
    std::memset(&shared, 0xff, sizeof shared);  // as unspecified as can be: floats are NaN
    (run_phase<Body, Phase>(body, order, b, blocks, shared), ...);
  });
}

/// How many blocks of the kernel the device runs at once.
template <class Kernel>
std::int64_t resident_blocks(Kernel* kernel, Device device) {
  static const int a_processor = [kernel] {
    int blocks = 1;
    FQ_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, block_threads, 0));
    return blocks;
  }();
  return std::int64_t{a_processor} * processors(device);
}

/// `run` is what the kernel is on the host. Sources that make the same kernel may have it at addresses of
/// their own.
template <auto run, class First, class Second>
void launch(const void* kernel, std::int64_t blocks, First first, Second second, cudaStream_t stream) {
  static std::atomic<const void*> known;
  if (known.load(std::memory_order_relaxed) != kernel) {
    set_host_runner(kernel, {run, {sizeof first, sizeof second}});
    known.store(kernel, std::memory_order_relaxed);
  }
  void* arguments[] = {&first, &second};
  FQ_CUDA(cudaLaunchKernel(kernel, dim3(static_cast<unsigned>(blocks)), dim3(block_threads), arguments, 0,
                           stream));
}

template <class Body, int... Phase>
void launch_phases(Device device, std::int64_t blocks, Body body,
                   std::integer_sequence<int, Phase...> phases) {
  auto* kernel = &phases_kernel<Body, Phase...>;
  launch<&run_phases_on_host<Body, Phase...>>(reinterpret_cast<const void*>(kernel), blocks, body, phases,
                                              stream_of(device));
}

}  // namespace detail

/// body(i) for each i of 0 <= i < items, in any order and at once.
template <class Body>
void for_items(Device device, std::int64_t items, Body body) {
  if (items <= 0) return;
  const cudaStream_t stream = stream_of(device);
  auto* kernel = &detail::items_kernel<Body>;
  detail::launch<&detail::run_items_on_host<Body>>(
      reinterpret_cast<const void*>(kernel), grid_blocks(items, detail::resident_blocks(kernel, device)),
      body, items, stream);
}

/// Work of whole blocks: body.phase<p>(thread, shared) for p = 0 .. Body::phases - 1 by every thread of every
/// block; all threads of a block have done phase p before one begins the next. `Body::Shared`, of trivial
/// type, is the block's own, and unspecified at first. Nothing else is kept between phases.
template <class Body>
void for_blocks(Device device, std::int64_t blocks, Body body) {
  static_assert(sizeof(typename Body::Shared) <= 48 * 1024, "more than every GPU gives a block");
  if (blocks <= 0) return;
  if (blocks > most_blocks) throw ArgumentError("[cuda] more blocks than a launch may have");
  detail::launch_phases(device, blocks, body, std::make_integer_sequence<int, Body::phases>{});
}

}  // namespace fq::cuda
