#pragma once

/// Streams of the simulated device, and the work that is recorded from them.

#include <functional>
#include <vector>

#include <cuda_runtime_api.h>

namespace fq::simulated {

using Work = std::function<void()>;

struct Graph {
  std::vector<Work> work;
};

struct Stream {
  Graph* recorded = nullptr;  // not null between cudaStreamBeginCapture and cudaStreamEndCapture
};

[[nodiscard]] inline Stream& as_stream(cudaStream_t stream) { return *reinterpret_cast<Stream*>(stream); }

/// Runs the work, with the device's memory open, or puts it into the graph that the stream is recorded into.
/// The caller holds the device's mutex.
void submit(cudaStream_t stream, Work work);

}  // namespace fq::simulated
