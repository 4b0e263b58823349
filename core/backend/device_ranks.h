#pragma once

/// DeviceRanks: sums over the GPUs of several processes, one GPU for each process (NCCL).

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

  /// Replaces each element of an i64 tensor by the sum over all ranks, in the stream of the device. All ranks
  /// must make the call. The call does not wait for the other ranks, but the work never ends without them.
  virtual void sum(Tensor& values) = 0;
};

/// Returns why DeviceRanks is unavailable: no CUDA or NCCL in the build, no library on the machine. Empty if
/// available.
[[nodiscard]] std::string why_no_device_ranks();
/// Returns the id that one rank sends to all others for `join_device_ranks`.
[[nodiscard]] std::string device_ranks_id();
/// Waits for all `size` ranks with the id. Throws BackendError if they cannot reach each other, or if two
/// ranks share a GPU. While the object lives, waits for the device are checked: an NCCL error, or a wait of
/// more than `seconds`, aborts the sums and throws BackendError.
[[nodiscard]] std::unique_ptr<DeviceRanks> join_device_ranks(Device device, int rank, int size,
                                                             const std::string& id, double seconds);

}  // namespace fq::detail
