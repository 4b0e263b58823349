#pragma once

/// The stream of a device, and error reports of kernels. CUDA builds only.

#include <cstdint>
#include <functional>
#include <string>

#include <cuda_runtime_api.h>

#include "fakequant/core/backend/cuda/runtime/handle.h"
#include "fakequant/core/device.h"

namespace fq::cuda {

/// Maximum number of GPUs of one process.
constexpr int max_devices = 64;

using Stream = Handle<cudaStream_t, cudaStreamDestroy>;
using Event = Handle<cudaEvent_t, cudaEventDestroy>;

/// Makes `device` current on the calling thread and returns the stream of all its work. Throws BackendError
/// for a device that does not exist.
cudaStream_t device_stream(Device device);
/// Returns the stream that orders this thread's allocations during an upload to the device, else null.
[[nodiscard]] cudaStream_t upload_stream(Device device) noexcept;
/// Waits for all work of a stream, or for an event. Rethrows an exception of a WaitCheck.
void wait(cudaStream_t stream);
void wait(cudaEvent_t event);

/// Function called repeatedly while a thread waits for a device, with the seconds waited so far. It can throw
/// to end the wait: sums over ranks never end if a rank is lost.
using WaitCheck = std::function<void(double seconds)>;
/// Sets the check until the next call. An empty function removes it.
void set_wait_check(WaitCheck check);
/// Returns the number of multiprocessors.
[[nodiscard]] int processors(Device device);

/// Error report of a kernel: `*flag` is the smallest id reported.
struct Alarm {
  int* flag;  ///< device memory
  int id;
};
/// Exception that the next wait or copy to the host throws for an alarm: NumericError, or ArgumentError for
/// an invalid argument.
enum class AlarmKind : unsigned char { numeric, argument };
/// Returns the alarm with `text` as the message.
[[nodiscard]] Alarm alarm(Device device, const std::string& text, AlarmKind kind = AlarmKind::numeric);

}  // namespace fq::cuda
