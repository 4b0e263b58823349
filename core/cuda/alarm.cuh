#pragma once

/// Alarms raised by kernels; not a public header.

#include "fakequant/core/cuda/atomics.cuh"
#include "fakequant/core/cuda/stream.h"

namespace fq::cuda {

FQ_HD void raise(const Alarm& alarm) { atomic_lower(*alarm.flag, alarm.id); }

}  // namespace fq::cuda
