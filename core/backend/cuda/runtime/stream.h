#pragma once

/// The stream of a device, and what kernels leave for the host to find. CUDA builds only.

#include <cstdint>
#include <string>

#include <cuda_runtime_api.h>

#include "fakequant/core/backend/cuda/runtime/handle.h"
#include "fakequant/core/device.h"

namespace fq::cuda {

using Stream = Handle<cudaStream_t, cudaStreamDestroy>;
using Event = Handle<cudaEvent_t, cudaEventDestroy>;

/// Makes it the calling thread's device, and gives the stream of all its work. Throws BackendError for one
/// that is not there.
cudaStream_t stream_of(Device device);
/// For all work of a stream.
void wait(cudaStream_t stream);
/// Multiprocessors.
[[nodiscard]] int processors(Device device);

/// Where kernels report a number that is not allowed: `*flag` becomes the smallest id reported.
struct Alarm {
  int* flag;  ///< of the device
  int id;
};
/// What an alarm becomes at the next wait, or copy to the host: NumericError, or ArgumentError for what was
/// given.
enum class AlarmKind : unsigned char { numeric, argument };
/// With `text` as the message.
[[nodiscard]] Alarm alarm(Device device, const std::string& text, AlarmKind kind = AlarmKind::numeric);

}  // namespace fq::cuda
