#pragma once

/// Copies beside the work of a device. core/backend/transfer.h says what they are for.

#include <cstddef>
#include <memory>

#include "fakequant/core/tensor.h"

namespace fq::cuda {

/// A copy of a tensor of the host, complete when it returns. It waits for no other work of the device.
[[nodiscard]] Tensor upload(const Tensor& host, Device device);

/// A copy of a tensor of the host; launches of a capture find it as it is now.
[[nodiscard]] Tensor constant(const Tensor& host, Device device);

class Readback {
 public:
  Readback(const void* from, std::size_t bytes, Device device);
  ~Readback();
  Readback(Readback&&) noexcept;
  Readback& operator=(Readback&&) noexcept;

  /// Waits for the copy. Throws as `wait_for` what was reported before it was begun.
  void get(void* to);

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

}  // namespace fq::cuda
