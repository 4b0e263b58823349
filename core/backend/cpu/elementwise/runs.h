#pragma once

/// Runs of bits copied from one array to another.

#include "fakequant/core/blocks/detail/strided_bits.h"
#include "fakequant/core/device.h"

namespace fq::cpu {

/// The runs do not overlap. Bits beside them stay.
void copy_runs(const detail::StridedBits& copy, const void* in, void* out, Device device);

}  // namespace fq::cpu
