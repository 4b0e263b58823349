#pragma once

/// The library's launches, for the simulated device: the same bodies, thread by thread on the host. Sources
/// of kernels are compiled once more with this folder before the library's own.

#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "fakequant/core/backend/cuda/loops/launch_shape.h"
#include "fakequant/core/backend/cuda/runtime/check.h"
#include "fakequant/core/backend/cuda/runtime/runtime.h"
#include "fakequant/core/backend/cuda/runtime/stream.h"
#include "simulated/launch.h"

namespace fq::cuda::loops {

template <class Body>
std::int64_t resident_blocks(Device device) {
  return processors(device);
}

template <class Body>
void launch_items(Device device, std::int64_t blocks, const Body& body, std::int64_t items) {
  static_assert(std::is_trivially_copyable_v<Body>, "a launch copies bytes");
  count_launch();
  FQ_CUDA(simulated::launch(device_stream(device), [=](simulated::Order order) {
    simulated::run_ordered(order, blocks * block_threads, [&](std::int64_t t) {
      run_items(body, items, {t / block_threads, blocks, static_cast<int>(t % block_threads)});
    });
  }));
}

template <class Body, int Phase>
void run_phase(const Body& body, simulated::Order order, std::int64_t block, std::int64_t blocks,
               typename Body::Shared& shared) {
  simulated::run_ordered(order, block_threads, [&](std::int64_t t) {
    body.template phase<Phase>(Thread{block, blocks, static_cast<int>(t)}, shared);
  });
}

template <class Body, int... Phase>
void launch_phases(Device device, std::int64_t blocks, const Body& body,
                   std::integer_sequence<int, Phase...>) {
  static_assert(std::is_trivially_copyable_v<Body>, "a launch copies bytes");
  count_launch();
  FQ_CUDA(simulated::launch(device_stream(device), [=](simulated::Order order) {
    simulated::run_ordered(order, blocks, [&](std::int64_t b) {
      typename Body::Shared shared;
      std::memset(&shared, 0xff, sizeof shared);  // as unspecified as can be: floats are NaN
      (run_phase<Body, Phase>(body, order, b, blocks, shared), ...);
    });
  }));
}

template <class Body, int Phase>
void run_keeping(const Body& body, simulated::Order order, std::int64_t block, std::int64_t blocks,
                 typename Body::Shared& shared, std::vector<typename Body::Kept>& kept) {
  simulated::run_ordered(order, block_threads, [&](std::int64_t t) {
    body.template phase<Phase>(Thread{block, blocks, static_cast<int>(t)}, shared, kept[t]);
  });
}

template <class Body, int... Phase>
void launch_keeping(Device device, std::int64_t blocks, const Body& body,
                    std::integer_sequence<int, Phase...>) {
  static_assert(std::is_trivially_copyable_v<Body>, "a launch copies bytes");
  count_launch();
  FQ_CUDA(simulated::launch(device_stream(device), [=](simulated::Order order) {
    simulated::run_ordered(order, blocks, [&](std::int64_t b) {
      typename Body::Shared shared;
      std::memset(&shared, 0xff, sizeof shared);
      std::vector<typename Body::Kept> kept(block_threads);
      std::memset(kept.data(), 0xff, kept.size() * sizeof kept[0]);
      (run_keeping<Body, Phase>(body, order, b, blocks, shared, kept), ...);
    });
  }));
}

template <class Body>
void launch_rounds(Device device, std::int64_t blocks, const Body& body, int rounds) {
  static_assert(std::is_trivially_copyable_v<Body>, "a launch copies bytes");
  count_launch();
  FQ_CUDA(simulated::launch(device_stream(device), [=](simulated::Order order) {
    simulated::run_ordered(order, blocks, [&](std::int64_t b) {
      typename Body::Shared shared;
      std::memset(&shared, 0xff, sizeof shared);
      std::vector<typename Body::Kept> kept(block_threads);
      std::memset(kept.data(), 0xff, kept.size() * sizeof kept[0]);
      const auto each_thread = [&](auto&& step) {
        simulated::run_ordered(order, block_threads, [&](std::int64_t t) {
          step(Thread{b, blocks, static_cast<int>(t)}, kept[static_cast<std::size_t>(t)]);
        });
      };
      each_thread([&](const Thread& t, auto& own) { body.begin(t, shared, own); });
      for (int round = 0; round < rounds; ++round)
        each_thread([&](const Thread& t, auto& own) { body.round(t, round, shared, own); });
      each_thread([&](const Thread& t, auto& own) { body.finish(t, shared, own); });
    });
  }));
}

}  // namespace fq::cuda::loops
