#pragma once

/// What the work of a thread is captured into, for those who allocate, copy and launch. CUDA builds only.

#include <cstdint>
#include <functional>

#include "fakequant/core/backend/cuda/runtime/arena.h"
#include "fakequant/core/backend/cuda/runtime/stream.h"
#include "fakequant/core/storage.h"

namespace fq::cuda {

struct Capturing {
  Device device;
  cudaStream_t stream = nullptr;  ///< captured from, never run
  std::shared_ptr<Arena> arena;   ///< where its tensors are
};

/// That of this thread while its work on the device is captured, else null.
[[nodiscard]] const Capturing* capturing(Device device) noexcept;
/// Where kernels that are captured find random_stream().step of a launch, on the device; else null.
[[nodiscard]] const std::uint64_t* captured_step(Device device) noexcept;
/// Throws CannotCapture, naming `what`, while this thread's work is captured.
void refuse_capture(const char* what);

/// Runs `work` outside of this thread's capture. Its kernels run at once, and its memory outlives the
/// capture. For workspaces and for tests of the device.
void without_capture(const std::function<void()>& work);

/// A copy of bytes of the host for kernels to read, such as a list of addresses; launches of a capture find
/// it as it is now.
[[nodiscard]] Storage constant(const void* from, std::size_t bytes, Device device);

}  // namespace fq::cuda
