#pragma once

/// Tensors between the host and a device while it works.

#include <memory>

#include "fakequant/core/tensor.h"

namespace fq::detail {

/// A copy of a host tensor on the device, complete when this returns: through page-locked memory, in a stream
/// beside that of the device's work. For a thread that makes batches ahead. On the CPU the tensor itself.
[[nodiscard]] Tensor upload(const Tensor& host, Device device);

/// Numbers that no one changes, such as those of options, on the device: launches of a capture find them as
/// they are now. The tensor itself where it is there.
[[nodiscard]] Tensor constant(const Tensor& x, Device device);

/// The values of a tensor as they are now, on their way to the host: the device goes on with what is put
/// into its stream afterwards. On the CPU they are copied at once.
class Readback {
 public:
  explicit Readback(const Tensor& x);
  ~Readback();
  Readback(const Readback&) = delete;  // the copy arrives in memory that it owns
  Readback& operator=(const Readback&) = delete;

  /// On the host; waits until they are there. Throws NumericError for a NaN that a quantizer met before,
  /// ArgumentError for a label or id out of range (Tensor::to tells of them likewise), BackendError when the
  /// device failed.
  [[nodiscard]] Tensor get();

 private:
  struct Body;
  std::unique_ptr<Body> body_;
  Tensor host_;
};

}  // namespace fq::detail
