#include <algorithm>

#include "fakequant/core/backend/cpu/ranges/search_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fakequant/core/backend/cpu/ranges/error_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "fakequant/core/backend/cpu/vector/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fq::HWY_NAMESPACE {
namespace {

using Doubles = hn::ScalableTag<double>;
using DoubleVector = hn::Vec<Doubles>;

constexpr std::size_t kChunk = 128;  // points between checks of the limit

// ModelOpt's integers: clamp(rint(x * scale)) / divisor.
struct Integers {
  FloatVector scale, divisor, lower, upper;
  explicit Integers(const cpu::FakeQuantRule& r)
      : scale(hn::Set(FloatTag(), r.scale)),
        divisor(hn::Set(FloatTag(), r.divisor)),
        lower(hn::Set(FloatTag(), r.lower)),
        upper(hn::Set(FloatTag(), r.upper)) {}
  FloatVector value(FloatVector x) const { return modelopt_fake_quant(x, scale, divisor, lower, upper); }
};

struct E4m3 {
  FloatVector scale, inverse;
  explicit E4m3(const cpu::FakeQuantRule& r)
      : scale(hn::Set(FloatTag(), r.scale)), inverse(hn::Set(FloatTag(), r.inverse)) {}
  FloatVector value(FloatVector x) const { return modelopt_scaled_e4m3(x, scale, inverse); }
};

/// Adds (q - c)^2 * count for `size` points.
HWY_ATTR DoubleVector with_errors(DoubleVector sum, const float* q, const float* c, const double* counts,
                                  std::size_t size) {
  const Doubles d;
  const hn::Rebind<float, Doubles> f;
  for (std::size_t i = 0; i < size; i += hn::Lanes(d)) {
    // In f64: counts reach billions, and candidates may differ by 1e-7 of their error.
    const auto error = hn::Sub(hn::PromoteTo(d, hn::LoadU(f, q + i)), hn::PromoteTo(d, hn::LoadU(f, c + i)));
    sum = hn::Add(sum, hn::Mul(hn::Mul(error, error), hn::LoadU(d, counts + i)));
  }
  return sum;
}

template <class Rule>
double error_sum(const cpu::ErrorPoints& points, const Rule& rule, double limit) {
  const FloatTag f;
  const Doubles d;
  const float* c = points.centres.data();
  HWY_ALIGN float q[kChunk];
  double total = 0;
  DoubleVector sum = hn::Zero(d);
  // A range that is already worse than the best one needs no exact sum.
  for (std::size_t i = 0; i < points.centres.size() && total <= limit; i += kChunk) {
    const std::size_t size = std::min(kChunk, points.centres.size() - i);
    for (std::size_t k = 0; k < size; k += hn::Lanes(f))
      hn::StoreU(rule.value(hn::LoadU(f, c + i + k)), f, q + k);
    sum = with_errors(sum, q, c + i, points.counts.data() + i, size);
    // One horizontal sum per 128 points: cheap, and early enough to stop.
    total = hn::GetLane(hn::SumOfLanes(d, sum));
  }
  return total;
}

double SquaredError(const cpu::ErrorPoints& points, const cpu::FakeQuantRule& rule, double limit) {
  return rule.integer ? error_sum(points, Integers(rule), limit) : error_sum(points, E4m3(rule), limit);
}

}  // namespace
}  // namespace fq::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fq {
HWY_EXPORT(SquaredError);

namespace cpu {

ErrorPoints::ErrorPoints(const std::vector<float>& c, const std::vector<double>& n) {
  for (std::size_t i = 0; i < c.size(); ++i) {
    // Even positions count from the end, odd ones from the beginning.
    const std::size_t k = i % 2 == 0 ? c.size() - 1 - i / 2 : i / 2;
    if (n[k] == 0) continue;
    centres.push_back(c[k]);
    counts.push_back(n[k]);
  }
  constexpr std::size_t lanes = 64;  // maximum of all targets
  centres.resize((centres.size() + lanes - 1) / lanes * lanes);
  counts.resize(centres.size());
}

double squared_error(const ErrorPoints& points, const FakeQuantRule& rule, double limit) {
  return HWY_DYNAMIC_DISPATCH(SquaredError)(points, rule, limit);
}

}  // namespace cpu
}  // namespace fq
#endif
