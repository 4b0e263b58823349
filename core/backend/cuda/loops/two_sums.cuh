#pragma once

/// Two sums made together in f64.

#include <cstdint>

#include "fakequant/core/numerics/host_device.h"

namespace fq::cuda {

struct TwoSums {
  double first, second;
  /// Sums of values and of their squares.
  FQ_HD void add(double v) {
    first += v;
    second += v * v;
  }
};

struct JoinSums {
  FQ_HD void operator()(TwoSums& a, const TwoSums& b) const {
    a.first += b.first;
    a.second += b.second;
  }
};

/// For reduce_channels: terms(sum, element, channel) adds an element's two terms.
template <class Terms>
struct SumTerms {
  using Sum = TwoSums;
  Terms terms;
  FQ_HD Sum zero() const { return {0.0, 0.0}; }
  FQ_HD void add(Sum& sum, std::int64_t i, std::int64_t c) const { terms(sum, i, c); }
  FQ_HD void join(Sum& sum, const Sum& other) const { JoinSums{}(sum, other); }
};

}  // namespace fq::cuda
