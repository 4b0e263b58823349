#pragma once

/// State of the simulated device and its streams.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include <cuda_runtime_api.h>

#include "simulated/device_memory.h"

namespace fq::simulated {

using Work = std::function<void()>;

/// The work of a stream that was not waited for. It outlives the stream for events that refer to it.
struct Queue {
  std::deque<Work> work;
  std::uint64_t done = 0;  ///< pieces that have left it

  [[nodiscard]] std::uint64_t end() const { return done + work.size(); }
};

struct State {
  std::recursive_mutex mutex;
  DeviceMemory memory;
  std::map<const std::byte*, std::size_t, std::greater<>> pinned;  // blocks of cudaHostAlloc, downwards
  std::map<Queue*, std::weak_ptr<Queue>> queues;
  cudaError_t planned = cudaSuccess, last = cudaSuccess;
  int calls_left = 0, running = 0;
  bool bytes_refused = false;
  std::int64_t launches = 0, pageable_copies = 0;
  float milliseconds = 1;  ///< the time between any two events
};
[[nodiscard]] State& state();

/// Start of every call that may fail. A failing device has no pending work.
[[nodiscard]] cudaError_t answer();
[[nodiscard]] cudaError_t failed(cudaError_t code);

/// Whether work is captured from the stream.
[[nodiscard]] bool captured(cudaStream_t stream);
/// `answer` of calls that a stream cannot take meanwhile.
[[nodiscard]] cudaError_t answer_now(cudaStream_t stream);
/// Puts work into the stream, or into the graph that is captured from it. It runs, with the device's memory
/// open, when it is waited for: by the host, or by other work that is. The caller holds the device's mutex.
void submit(cudaStream_t stream, Work work);
/// Runs the work of a queue up to there.
void run_until(Queue& queue, std::uint64_t end);

}  // namespace fq::simulated
