#pragma once

/// Launches of the simulated device.

#include <cstdint>
#include <functional>

#include <cuda_runtime_api.h>

namespace fq::simulated {

/// Order of blocks and threads: no result may depend on it.
enum class Order { forwards, backwards };

/// f(i) for 0 <= i < count.
template <class F>
void run_ordered(Order order, std::int64_t count, F&& f) {
  for (std::int64_t i = 0; i < count; ++i) f(order == Order::forwards ? i : count - 1 - i);
}

/// Adds a kernel to the stream. Every second one runs backwards.
cudaError_t launch(cudaStream_t stream, std::function<void(Order)> kernel);

}  // namespace fq::simulated
