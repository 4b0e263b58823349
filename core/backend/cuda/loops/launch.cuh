#pragma once

/// Launches of functions of a thread. A body is a struct of numbers and pointers whose call, marked FQ_HD,
/// does one item's work.

#include <utility>

#include "fakequant/core/backend/cuda/loops/kernels.cuh"

namespace fq::cuda {

/// Times as many blocks as run at once: those that end early take what is left over from others.
inline constexpr std::int64_t launch_waves = 8;

/// body(i) for each i of 0 <= i < items, in any order and at once.
template <class Body>
void for_items(Device device, std::int64_t items, Body body) {
  if (items <= 0) return;
  loops::launch_items(device, grid_blocks(items, launch_waves * loops::resident_blocks<Body>(device)), body,
                      items);
}

/// Work of whole blocks: body.phase<p>(thread, shared) for p = 0 .. Body::phases - 1 by every thread of every
/// block; all threads of a block have done phase p before one begins the next. `Body::Shared`, of trivial
/// type, is the block's own, and unspecified at first. Nothing else is kept between phases.
template <class Body>
void for_blocks(Device device, std::int64_t blocks, Body body) {
  static_assert(sizeof(typename Body::Shared) <= 48 * 1024, "more than every GPU gives a block");
  if (blocks <= 0) return;
  if (blocks > most_blocks) throw ArgumentError("[cuda] more blocks than a launch may have");
  loops::launch_phases(device, blocks, body, std::make_integer_sequence<int, Body::phases>{});
}

/// The same of body.phase<p>(thread, shared, kept): `Body::Kept`, of trivial type, is the thread's own from
/// phase to phase, in registers where arrays are indexed by constants alone.
template <class Body>
void for_blocks_keeping(Device device, std::int64_t blocks, Body body) {
  if (blocks <= 0) return;
  if (blocks > most_blocks) throw ArgumentError("[cuda] more blocks than a launch may have");
  loops::launch_keeping(device, blocks, body, std::make_integer_sequence<int, Body::phases>{});
}

}  // namespace fq::cuda
