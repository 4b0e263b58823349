#pragma once

/// Alarms raised by kernels.

#include "fakequant/core/backend/cuda/loops/atomics.cuh"
#include "fakequant/core/backend/cuda/runtime/stream.h"

namespace fq::cuda {

FQ_HD void raise(const Alarm& alarm) { atomic_lower(*alarm.flag, alarm.id); }

}  // namespace fq::cuda
