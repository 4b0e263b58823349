#pragma once

/// Work that is captured from a GPU's stream once and launched again as a whole. CUDA graphs: builds without
/// CUDA cannot make one.

#include <cstddef>
#include <functional>
#include <memory>

#include "fakequant/core/device.h"
#include "fakequant/core/error.h"

namespace fq::detail {

/// The work did what cannot be repeated: a wait, or a copy from or to the host.
class CannotCapture : public BackendError {
 public:
  using BackendError::BackendError;
};

/// Parts of a piece of work, such as the passes of a training step. Each launch reads and writes the memory
/// that the captured calls did, with the numbers that they were given; only `random_stream().step` is that of
/// the launch.
///
/// Tensors made by the work live in memory of the capture: those that somebody holds have new contents after
/// each launch. Tensors from outside that it reads or writes are kept; the versions of those it writes change
/// with each launch, as they would with the calls.
class Capture {
 public:
  explicit Capture(Device device);
  ~Capture();
  Capture(const Capture&) = delete;  // its parts refer to its memory
  Capture& operator=(const Capture&) = delete;

  /// Calls `work`; its kernels and copies on the device become the next part, none of them is done. Throws
  /// CannotCapture, and what `work` throws. Then there is no such part, and what the work has left on the
  /// host (caches) has contents that nobody computes.
  void add(const std::function<void()>& work);
  /// Puts a part into the device's stream.
  void launch(std::size_t part);

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

}  // namespace fq::detail
