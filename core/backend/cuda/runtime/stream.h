#pragma once

/// The stream of a device, and what kernels leave for the host to find. CUDA builds only.

#include <cstdint>
#include <functional>
#include <string>

#include <cuda_runtime_api.h>

#include "fakequant/core/backend/cuda/runtime/handle.h"
#include "fakequant/core/device.h"

namespace fq::cuda {

/// GPUs that one process can use.
constexpr int max_devices = 64;

using Stream = Handle<cudaStream_t, cudaStreamDestroy>;
using Event = Handle<cudaEvent_t, cudaEventDestroy>;

/// Makes it the calling thread's device, and gives the stream of all its work. Throws BackendError for one
/// that is not there.
cudaStream_t stream_of(Device device);
/// The stream that this thread's allocations are ordered in while it uploads to the device, else null.
[[nodiscard]] cudaStream_t upload_stream(Device device) noexcept;
/// Waits for all work of a stream, or for an event. Passes on the exception of a WaitCheck.
void wait(cudaStream_t stream);
void wait(cudaEvent_t event);

/// Called again and again while a thread waits for a device, with the seconds waited so far. It ends the wait
/// by an exception: sums over ranks never end where a rank is lost.
using WaitCheck = std::function<void(double seconds)>;
/// The check is in force until the next call; an empty one ends it.
void set_wait_check(WaitCheck check);
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
