#include "fakequant/core/detail/device_traits.h"

#include <string>

#include <fmt/format.h>

#include "fakequant/core/backend/cuda/runtime/runtime.h"
#include "fakequant/core/log.h"

namespace fq::detail {
namespace {

Device choose() {
  const int count = cuda::device_count();
  std::string reasons = count == 0 ? cuda::why_unusable() : "";
  for (int i = 0; i < count; ++i) {
    const Device gpu = Device::cuda(i);
    const auto trial = cuda::try_device(gpu);
    if (trial.works) {
      log(LogLevel::info, fmt::format("device auto is {}: {}", to_string(gpu), trial.text));
      return gpu;
    }
    reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", to_string(gpu), trial.text);
  }
  // A machine without a GPU is normal. A GPU that cannot be used is worth a warning.
  log(count == 0 ? LogLevel::info : LogLevel::warning, fmt::format("device auto is the CPU ({})", reasons));
  return Device::cpu();
}

}  // namespace

Device chosen_device() {
  // Chosen once: a run does not change its device when another program takes or frees memory.
  static const Device device = choose();
  return device;
}

std::string code_type(Device gpu) { return cuda::code_type(gpu); }

}  // namespace fq::detail
