#pragma once

/// Properties of devices, and the device of "auto".

#include <string>

#include "fakequant/core/device.h"

namespace fq::detail {

/// The first GPU that runs a kernel and has some memory left, else the CPU; found once, and logged with the
/// reason: as info, or as a warning where GPUs are there and none can be used.
[[nodiscard]] Device chosen_device();

/// What a GPU multiplies codes as: "s8", or "bf16 (s8: products of full-range codes come out wrong)". Tries
/// it with the first call. Throws BackendError for a GPU that cannot be used.
[[nodiscard]] std::string code_type(Device gpu);

/// Properties of a device that decide how callers use its kernels.
struct DeviceTraits {
  bool own_memory;  ///< the device has its own memory: the host reads values by copies, which wait
  bool launches;    ///< calls become work of a stream: one call for many tensors is faster than one for each
  bool captures;    ///< a Capture (capture.h) can repeat the work of the device
};

[[nodiscard]] constexpr DeviceTraits traits_of(Device device) noexcept {
  const bool gpu = device.is_cuda();
  return {.own_memory = gpu, .launches = gpu, .captures = gpu};
}

}  // namespace fq::detail
