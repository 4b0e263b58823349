#pragma once

/// DeviceRanks: GPUs of several processes, one of each, which sum what lies on them (NCCL).

#include <memory>
#include <string>

#include "fakequant/core/tensor.h"

namespace fq::detail {

class DeviceRanks {
 public:
  DeviceRanks() = default;
  virtual ~DeviceRanks() = default;
  DeviceRanks(const DeviceRanks&) = delete;  // held by unique_ptr
  DeviceRanks& operator=(const DeviceRanks&) = delete;

  /// Each element of an i64 tensor becomes the sum of those of all ranks, in the stream of the device. All
  /// make the call; it does not wait for the others, and the work has no end without them.
  virtual void sum(Tensor& values) = 0;
};

/// Why there are none: no CUDA or NCCL in the build, no library on the machine. Empty where there are.
[[nodiscard]] std::string why_no_device_ranks();
/// What one rank gives to all for `join_device_ranks`.
[[nodiscard]] std::string device_ranks_id();
/// Waits for all `size` ranks of that id. Throws BackendError where they cannot reach each other, or two have
/// one GPU. While it lives, waits for the device are checked: an error of NCCL, or a wait of more than
/// `seconds`, aborts the sums and throws BackendError.
[[nodiscard]] std::unique_ptr<DeviceRanks> join_device_ranks(Device device, int rank, int size,
                                                             const std::string& id, double seconds);

}  // namespace fq::detail
