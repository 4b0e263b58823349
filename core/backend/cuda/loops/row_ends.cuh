#pragma once

/// The ends of the values of rows and 0, for reduce_channels.

#include <cstdint>

#include "fakequant/core/numerics/host_device.h"

namespace fq::cuda {

struct RowEnds {
  float low, high;
  bool nan;
};

struct FindRowEnds {
  using Sum = RowEnds;
  const float* x;
  FQ_HD Sum zero() const { return {0.0f, 0.0f, false}; }
  FQ_HD void add(Sum& ends, std::int64_t i, std::int64_t) const { join(ends, {x[i], x[i], x[i] != x[i]}); }
  FQ_HD void join(Sum& ends, const Sum& other) const {
    ends = {other.low < ends.low ? other.low : ends.low, other.high > ends.high ? other.high : ends.high,
            ends.nan || other.nan};
  }
};

}  // namespace fq::cuda
