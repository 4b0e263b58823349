#pragma once

/// Transfers between host and device that run next to the device's work.

#include <memory>

#include "fakequant/core/tensor.h"

namespace fq::detail {

/// Returns a copy of a host tensor on the device, complete on return. The copy goes through page-locked
/// memory in a separate stream. Intended for a thread that prepares batches. On the CPU returns the tensor
/// itself.
[[nodiscard]] Tensor upload(const Tensor& host, Device device);

/// Returns constant numbers, for example options, on the device. Launches of a capture use the values of this
/// moment. Returns x itself if it is already on the device.
[[nodiscard]] Tensor constant(const Tensor& x, Device device);

/// Asynchronous copy of a tensor's current values to the host. The device continues with later work in its
/// stream meanwhile. On the CPU the values are copied at once.
class Readback {
 public:
  explicit Readback(const Tensor& x);
  ~Readback();
  Readback(const Readback&) = delete;  // owns the destination of the copy
  Readback& operator=(const Readback&) = delete;

  /// Waits for the values and returns them on the host. Throws NumericError for a NaN found by an earlier
  /// quantizer, ArgumentError for a label or id out of range (Tensor::to reports the same errors), and
  /// BackendError if the device failed.
  [[nodiscard]] Tensor get();

 private:
  struct Body;
  std::unique_ptr<Body> body_;
  Tensor host_;
};

}  // namespace fq::detail
