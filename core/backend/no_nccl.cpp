// Replaces DeviceRanks in builds without NCCL.

#include "fakequant/core/backend/device_ranks.h"
#include "fakequant/core/error.h"

namespace fq::detail {

std::string why_no_device_ranks() {
  return "this build has no NCCL: build where nvcc and nccl.h are found (-DFAKEQUANT_NCCL=ON)";
}
std::string device_ranks_id() { throw BackendError("[ranks] " + why_no_device_ranks()); }
std::unique_ptr<DeviceRanks> join_device_ranks(Device, int, int, const std::string&, double) {
  throw BackendError("[ranks] " + why_no_device_ranks());
}

}  // namespace fq::detail
