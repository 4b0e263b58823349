#pragma once

/// What callers may ask of a device beside its kernels.

#include "fakequant/core/device.h"

namespace fq::detail {

struct DeviceTraits {
  bool own_memory;  ///< not the host's: the host reads values of it by copies, which wait
  bool launches;    ///< calls become work of a stream: one for many tensors is faster than one for each
  bool captures;    ///< a Capture (capture.h) can repeat its work
};

[[nodiscard]] constexpr DeviceTraits traits_of(Device device) noexcept {
  const bool gpu = device.is_cuda();
  return {.own_memory = gpu, .launches = gpu, .captures = gpu};
}

}  // namespace fq::detail
