#pragma once

/// State of the capture of a thread's work, for code that allocates, copies and launches. CUDA builds only.

#include <cstdint>
#include <functional>

#include "fakequant/core/backend/cuda/runtime/arena.h"
#include "fakequant/core/backend/cuda/runtime/stream.h"
#include "fakequant/core/storage.h"

namespace fq::cuda {

struct Capturing {
  Device device;
  cudaStream_t stream = nullptr;  ///< capture stream; its work is never run
  std::shared_ptr<Arena> arena;   ///< memory of the captured tensors
};

/// Returns the capture of this thread while its work on the device is captured, else null.
[[nodiscard]] const Capturing* capturing(Device device) noexcept;
/// Returns the device address where captured kernels read random_stream().step of a launch, else null.
[[nodiscard]] const std::uint64_t* captured_step(Device device) noexcept;
/// Throws CannotCapture, with `what` in the message, while this thread's work is captured.
void refuse_capture(const char* what);

/// Runs `work` outside of this thread's capture. Its kernels run at once, and its memory outlives the
/// capture. Intended for workspaces and device tests.
void run_uncaptured(const std::function<void()>& work);

/// Returns a device copy of host bytes for kernels, for example a list of addresses. Launches of a capture
/// use the bytes of this moment.
[[nodiscard]] Storage constant(const void* from, std::size_t bytes, Device device);

}  // namespace fq::cuda
