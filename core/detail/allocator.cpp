#include "fakequant/core/detail/allocator.h"

#include "fakequant/core/backend/kernels.h"

namespace fq {

MemoryStats memory_stats(Device device) noexcept {
  const auto* found = detail::find_kernels(device);
  return found != nullptr ? found->memory_stats(device) : MemoryStats{};
}

void reset_peak_memory(Device device) noexcept {
  if (const auto* found = detail::find_kernels(device)) found->reset_peak_memory(device);
}

void release_cached_memory() noexcept {
  for (const Device device : {Device::cpu(), Device::cuda()})
    if (const auto* found = detail::find_kernels(device)) found->release_cached_memory();
}

}  // namespace fq
