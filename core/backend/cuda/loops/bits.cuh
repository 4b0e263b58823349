#pragma once

/// Bits of masks, in memory order.

#include <cstdint>

#include "fakequant/core/numerics/host_device.h"

namespace fq::cuda {

FQ_HD bool get_bit(const std::uint8_t* mask, std::int64_t i) { return ((mask[i >> 3] >> (i & 7)) & 1u) != 0; }

}  // namespace fq::cuda
