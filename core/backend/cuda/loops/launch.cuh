#pragma once

/// Launches of per-thread functions. A body is a struct of numbers and pointers. Its call operator, marked
/// FQ_HD, processes one item.

#include <utility>

#include "fakequant/core/backend/cuda/loops/kernels.cuh"

namespace fq::cuda {

/// Number of blocks relative to the number that runs concurrently. Blocks that finish early leave room for
/// the rest.
inline constexpr std::int64_t launch_waves = 8;

/// Calls body(i) for 0 <= i < items, concurrently and in any order.
template <class Body>
void launch_each(Device device, std::int64_t items, Body body) {
  if (items <= 0) return;
  loops::launch_items(device, grid_blocks(items, launch_waves * loops::resident_blocks<Body>(device)), body,
                      items);
}

/// Runs whole blocks: every thread of every block calls body.phase<p>(thread, shared) for p = 0 ..
/// Body::phases - 1. All threads of a block finish a phase before any of them begins the next.
/// `Body::Shared`, a trivial type, is the shared memory of a block, initially unspecified. Other values are
/// not kept between phases.
template <class Body>
void launch_blocks(Device device, std::int64_t blocks, Body body) {
  static_assert(sizeof(typename Body::Shared) <= 48 * 1024, "more than every GPU gives a block");
  if (blocks <= 0) return;
  if (blocks > most_blocks) throw ArgumentError("[cuda] the work needs more than 2^31 - 1 blocks: split it");
  loops::launch_phases(device, blocks, body, std::make_integer_sequence<int, Body::phases>{});
}

/// Runs whole blocks with body.phase<p>(thread, shared, kept). `Body::Kept`, a trivial type, is kept per
/// thread between phases. It stays in registers if arrays are indexed only by constants.
template <class Body>
void launch_stateful_blocks(Device device, std::int64_t blocks, Body body) {
  if (blocks <= 0) return;
  if (blocks > most_blocks) throw ArgumentError("[cuda] the work needs more than 2^31 - 1 blocks: split it");
  loops::launch_keeping(device, blocks, body, std::make_integer_sequence<int, Body::phases>{});
}

/// Runs blocks of `Body::threads` threads that repeat phases. All threads call body.begin(thread, shared,
/// kept), then body.step<p>(thread, shared, kept, i) for p < Body::step_phases and each i <
/// body.steps(shared), then body.end<p>(thread, shared, kept) for p < Body::end_phases.
///
/// A phase begins after all threads of the warp have finished the phase before. `begin`, and the step phases
/// with a true element in `Body::block_barriers`, finish in all threads of the block. `Body::Shared` has at
/// most 99 KB. `Body::least_blocks` blocks fit into the registers of a processor.
template <class Body>
void launch_steps(Device device, std::int64_t blocks, Body body) {
  if (blocks <= 0) return;
  if (blocks > most_blocks) throw ArgumentError("[cuda] the work needs more than 2^31 - 1 blocks: split it");
  loops::launch_steps(device, blocks, body,
                      loops::PhaseLists<std::make_integer_sequence<int, Body::step_phases>,
                                        std::make_integer_sequence<int, Body::end_phases>>{});
}

}  // namespace fq::cuda
