#pragma once

/// Floats in 64-bit fixed point, on host and device: what sums over ranks are made in.

#include <cmath>
#include <cstdint>

#include "fakequant/core/numerics/host_device.h"

namespace fq::scalar {

/// x * scale, a power of two, to nearest even. It has to fit.
FQ_HD std::int64_t to_fixed(float x, double scale) {
  const double scaled = static_cast<double>(x) * scale;
  return FQ_BY_TARGET(__double2ll_rn(scaled), std::llrint(scaled));
}

/// sum * unit, a power of two, rounded once to f32.
FQ_HD float from_fixed(std::int64_t sum, double unit) {
  return static_cast<float>(static_cast<double>(static_cast<float>(sum)) * unit);
}

}  // namespace fq::scalar
