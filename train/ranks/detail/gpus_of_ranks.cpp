#include "fakequant/train/ranks/detail/gpus_of_ranks.h"

#include <algorithm>

#include <fmt/format.h>

#include "fakequant/core/log.h"

namespace fq::detail {

std::unique_ptr<DeviceRanks> gpus_of_ranks(Communicator& ranks, Device device, double seconds) {
  const auto reasons = ranks.gather(why_no_device_ranks());
  const auto lacks = std::ranges::find_if(reasons, [](const auto& reason) { return !reason.empty(); });
  if (lacks != reasons.end()) {
    log(LogLevel::info, fmt::format("[ranks] sums of GPUs go by way of the host: {} (rank {})", *lacks,
                                    lacks - reasons.begin()));
    return nullptr;
  }
  const auto ids = ranks.gather(ranks.rank() == 0 ? device_ranks_id() : std::string());
  log(LogLevel::info, fmt::format("[ranks] {} GPUs sum by NCCL", ranks.size()));
  return join_device_ranks(device, ranks.rank(), ranks.size(), ids.front(), seconds);
}

}  // namespace fq::detail
