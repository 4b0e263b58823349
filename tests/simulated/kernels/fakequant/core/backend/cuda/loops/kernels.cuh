#pragma once

/// The library's launches, for the simulated device: the same bodies, thread by thread on the host. Sources
/// of kernels are compiled once more with this folder before the library's own.

#include <cstring>
#include <memory>
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

/// Runs one warp's threads, or all threads of the block.
template <class F>
void run_threads(simulated::Order order, int first, int count, const F& f) {
  simulated::run_ordered(order, count, [&](std::int64_t t) { f(first + static_cast<int>(t)); });
}

/// Runs phases that a warp ends with its own barrier, warp by warp: a phase that needs a barrier of the block
/// reads what another warp has not written yet.
template <class F>
void run_warps(simulated::Order order, int threads, int first_phase, int end_phase, const F& phase) {
  constexpr int warp = 32;
  simulated::run_ordered(order, threads / warp, [&](std::int64_t w) {
    for (int p = first_phase; p < end_phase; ++p)
      run_threads(order, static_cast<int>(w) * warp, warp, [&](int t) { phase(p, t); });
  });
}

template <class Body, int... Step, int... Last>
void run_steps(const Body& body, simulated::Order order, std::int64_t block, std::int64_t blocks,
               PhaseLists<std::integer_sequence<int, Step...>, std::integer_sequence<int, Last...>>) {
  using Shared = typename Body::Shared;
  using Kept = typename Body::Kept;
  const std::unique_ptr<Shared> shared(new Shared);
  std::memset(static_cast<void*>(shared.get()), 0xff, sizeof(Shared));
  std::vector<Kept> kept(Body::threads);
  std::memset(static_cast<void*>(kept.data()), 0xff, kept.size() * sizeof kept[0]);
  const auto thread = [=](int t) { return Thread{block, blocks, t}; };
  run_threads(order, 0, Body::threads, [&](int t) { body.begin(thread(t), *shared, kept[t]); });
  using StepPhase = void (*)(const Body&, Thread, Shared&, Kept&, int);
  static constexpr StepPhase steps[] = {
      [](const Body& own, Thread t, Shared& s, Kept& k, int i) { own.template step<Step>(t, s, k, i); }...};
  using LastPhase = void (*)(const Body&, Thread, Shared&, Kept&);
  static constexpr LastPhase lasts[] = {
      [](const Body& own, Thread t, Shared& s, Kept& k) { own.template end<Last>(t, s, k); }...};
  for (int i = 0, count = body.steps(*shared); i < count; ++i)
    for (int first = 0, end = 0; first < Body::step_phases; first = end) {
      while (!Body::block_barriers[end++]) {
      }
      run_warps(order, Body::threads, first, end,
                [&](int p, int t) { steps[p](body, thread(t), *shared, kept[t], i); });
    }
  run_warps(order, Body::threads, 0, Body::end_phases,
            [&](int p, int t) { lasts[p](body, thread(t), *shared, kept[t]); });
}

template <class Body, class Phases>
void launch_steps(Device device, std::int64_t blocks, const Body& body, Phases phases) {
  static_assert(std::is_trivially_copyable_v<Body>, "a launch copies bytes");
  static_assert(Body::block_barriers[Body::step_phases - 1], "the last phase of a step ends for all warps");
  count_launch();
  FQ_CUDA(simulated::launch(device_stream(device), [=](simulated::Order order) {
    simulated::run_ordered(order, blocks, [&](std::int64_t b) { run_steps(body, order, b, blocks, phases); });
  }));
}

}  // namespace fq::cuda::loops
