#pragma once

/// The GPUs of a run's ranks.

#include <memory>

#include "fakequant/core/backend/device_ranks.h"
#include "fakequant/train/ranks/communicator.h"

namespace fq::detail {

/// Called by all ranks, each with its GPU. Null on all of them where one has no NCCL, which rank 0 tells.
[[nodiscard]] std::unique_ptr<DeviceRanks> gpus_of_ranks(Communicator& ranks, Device device, double seconds);

}  // namespace fq::detail
