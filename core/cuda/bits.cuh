#pragma once

/// Bits of masks, in memory order; not a public header.

#include <cstdint>

#include "fakequant/core/host_device.h"

namespace fq::cuda {

FQ_HD bool get_bit(const std::uint8_t* mask, std::int64_t i) { return ((mask[i >> 3] >> (i & 7)) & 1u) != 0; }

}  // namespace fq::cuda
