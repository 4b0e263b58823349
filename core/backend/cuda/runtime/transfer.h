#pragma once

/// Copies that run next to the work of a device. See core/backend/transfer.h.

#include <cstddef>
#include <memory>

#include "fakequant/core/tensor.h"

namespace fq::cuda {

/// Returns a device copy of a host tensor, complete on return. Does not wait for other work of the device.
[[nodiscard]] Tensor upload(const Tensor& host, Device device);

/// Returns a device copy of a host tensor. Launches of a capture use the values of this moment.
[[nodiscard]] Tensor constant(const Tensor& host, Device device);

class Readback {
 public:
  Readback(const void* from, std::size_t bytes, Device device);
  ~Readback();
  Readback(Readback&&) noexcept;
  Readback& operator=(Readback&&) noexcept;

  /// Waits for the copy. Throws errors reported before the copy began, as `synchronize_device`.
  void get(void* to);

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

}  // namespace fq::cuda
