#pragma once

/// The library's for_blocks_keeping, for the simulated device.

#include <vector>

#include "fakequant/core/backend/cuda/loops/launch.cuh"

namespace fq::cuda {
namespace detail {

template <class Body, int Phase>
void run_keeping(const Body& body, simulated::Order order, std::int64_t block, std::int64_t blocks,
                 typename Body::Shared& shared, std::vector<typename Body::Kept>& kept) {
  simulated::in_order(order, block_threads, [&](std::int64_t t) {
    body.template phase<Phase>(Thread{block, blocks, static_cast<int>(t)}, shared, kept[t]);
  });
}

template <class Body, int... Phase>
void launch_keeping(Device device, std::int64_t blocks, const Body& body,
                    std::integer_sequence<int, Phase...>) {
  static_assert(std::is_trivially_copyable_v<Body>, "a launch copies bytes");
  count_launch();
  FQ_CUDA(simulated::launch(stream_of(device), [=](simulated::Order order) {
    simulated::in_order(order, blocks, [&](std::int64_t b) {
      typename Body::Shared shared;
      std::memset(&shared, 0xff, sizeof shared);
      std::vector<typename Body::Kept> kept(block_threads);
      std::memset(kept.data(), 0xff, kept.size() * sizeof kept[0]);
      (run_keeping<Body, Phase>(body, order, b, blocks, shared, kept), ...);
    });
  }));
}

}  // namespace detail

template <class Body>
void for_blocks_keeping(Device device, std::int64_t blocks, Body body) {
  if (blocks > 0)
    detail::launch_keeping(device, blocks, body, std::make_integer_sequence<int, Body::phases>{});
}

}  // namespace fq::cuda
