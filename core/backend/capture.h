#pragma once

/// Captures the work of a GPU's stream once and launches it again as a whole (CUDA graphs). Not available in
/// builds without CUDA.

#include <cstddef>
#include <functional>
#include <memory>

#include "fakequant/core/device.h"
#include "fakequant/core/error.h"

namespace fq::detail {

/// Thrown if the work does something that cannot be repeated: a wait, or a copy from or to the host.
class CannotCapture : public BackendError {
 public:
  using BackendError::BackendError;
};

/// Captured parts of a piece of work, for example the passes of a training step. Each launch reads and writes
/// the memory of the captured calls, with the arguments of those calls. Only `random_stream().step` comes
/// from the launch.
///
/// Tensors created by the work are in memory of the capture. Tensors that are still referenced get new
/// contents with each launch. Tensors from outside that the work reads or writes are kept alive. The versions
/// of written tensors change with each launch, as in direct calls.
class Capture {
 public:
  explicit Capture(Device device);
  ~Capture();
  Capture(const Capture&) = delete;  // its parts point to its memory
  Capture& operator=(const Capture&) = delete;

  /// Calls `work` and records its kernels and copies on the device as the next part, without running them.
  /// Throws CannotCapture, and exceptions of `work`. After an exception there is no such part, and host
  /// caches filled by `work` refer to values that are never computed.
  void add(const std::function<void()>& work);
  /// Enqueues a part in the device's stream.
  void launch(std::size_t part);

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

}  // namespace fq::detail
