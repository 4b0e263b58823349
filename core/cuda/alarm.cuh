#pragma once

/// Alarms raised by kernels; not a public header.

#include <cuda/atomic>

#include "fakequant/core/cuda/stream.h"
#include "fakequant/core/host_device.h"

namespace fq::cuda {

FQ_HD void raise(const Alarm& alarm) {
  const ::cuda::atomic_ref<int, ::cuda::thread_scope_device> flag(*alarm.flag);
  flag.fetch_min(alarm.id, ::cuda::memory_order_relaxed);
}

}  // namespace fq::cuda
