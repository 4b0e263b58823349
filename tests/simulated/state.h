#pragma once

/// What the simulated device is, and how its streams take work.

#include <functional>
#include <mutex>
#include <vector>

#include <cuda_runtime_api.h>

#include "simulated/counts.h"
#include "simulated/device_memory.h"

namespace fq::simulated {

struct Arrival {
  void* to;
  std::vector<std::byte> bytes;
};

struct State {
  std::recursive_mutex mutex;
  DeviceMemory memory;
  std::vector<Arrival> arrivals;  // copies to the host that nobody has waited for
  cudaError_t planned = cudaSuccess, last = cudaSuccess;
  int calls_left = 0;
  Counts counts{};
};
[[nodiscard]] State& state();

/// What a call that may fail begins with.
[[nodiscard]] cudaError_t answer();
[[nodiscard]] cudaError_t failed(cudaError_t code);

using Work = std::function<void()>;

/// Whether work is captured from the stream.
[[nodiscard]] bool captured(cudaStream_t stream);
/// `answer` of calls that a stream cannot take meanwhile.
[[nodiscard]] cudaError_t answer_now(cudaStream_t stream);
/// Runs the work, with the device's memory open, or puts it into the graph that is captured from the stream.
/// The caller holds the device's mutex.
void submit(cudaStream_t stream, Work work);

}  // namespace fq::simulated
