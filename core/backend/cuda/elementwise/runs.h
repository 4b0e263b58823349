#pragma once

/// Runs of bytes or bits copied within a GPU.

#include "fakequant/core/blocks/detail/strided_bits.h"
#include "fakequant/core/device.h"

namespace fq::cuda {

/// `copy` has something to copy; the runs do not overlap. Bits beside them stay.
void copy_runs(const fq::detail::StridedBits& copy, const void* in, void* out, Device device);

}  // namespace fq::cuda
