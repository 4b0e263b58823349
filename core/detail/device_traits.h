#pragma once

/// Properties of devices, and the device of "auto".

#include <string>

#include "fakequant/core/device.h"

namespace fq::detail {

/// Returns the first GPU that runs a kernel and has free memory, else the CPU. The result is cached and
/// logged with the reason: as info, or as a warning if no GPU is usable although there are some.
[[nodiscard]] Device chosen_device();

/// Returns the number type of a GPU's code products: "s8", or "bf16 (s8: products of full-range codes come
/// out wrong)". The first call tests the GPU. Throws BackendError if the GPU cannot be used.
[[nodiscard]] std::string code_type(Device gpu);

/// Properties of a device that affect how callers use its kernels.
struct DeviceTraits {
  bool own_memory;  ///< the device has its own memory: reading values on the host copies them and waits
  bool launches;    ///< work is queued to a stream: one call for many tensors is faster than several
  bool captures;    ///< a Capture (capture.h) can replay the work of the device
};

[[nodiscard]] constexpr DeviceTraits device_traits(Device device) noexcept {
  const bool gpu = device.is_cuda();
  return {.own_memory = gpu, .launches = gpu, .captures = gpu};
}

}  // namespace fq::detail
