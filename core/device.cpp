#include "fakequant/core/device.h"

#include <charconv>

#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/device_traits.h"

namespace fq {

Device Device::parse(std::string_view text) {
  if (text == "cpu") return cpu();
  if (text == "meta") return meta();
  if (text == "cuda") return cuda();
  if (text == "auto") return detail::chosen_device();
  int index = -1;
  if (text.starts_with("cuda:")) {
    const auto [end, error] = std::from_chars(text.data() + 5, text.data() + text.size(), index);
    // Rejects "cuda:1x" and "cuda:".
    if (error != std::errc{} || end != text.data() + text.size()) index = -1;
  }
  FQ_CHECK(index >= 0, "device", "'{}' is not a device: use cpu, cuda, cuda:N, auto or meta", text);
  return cuda(index);
}

std::string to_string(const Device& device) {
  if (device.is_cpu()) return "cpu";
  if (device.is_meta()) return "meta";
  return "cuda:" + std::to_string(device.index);
}

int cuda_device_count() noexcept { return detail::gpu_count(); }

std::string describe(Device device) {
  return device.is_cuda() ? detail::describe_gpu(device) : to_string(device);
}

void synchronize(Device device) { detail::run(device, &detail::Kernels::synchronize_device, device); }

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
