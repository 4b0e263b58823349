#include "fakequant/core/backend/cpu/ranges/search_kernels.h"

#include <algorithm>
#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fakequant/core/backend/cpu/ranges/search_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "fakequant/core/backend/cpu/vector/vector-inl.h"
//
#define FQ_FORMULAS_VECTOR
#include "fakequant/core/numerics/detail/histogram_formulas-inl.h"
#undef FQ_FORMULAS_VECTOR

HWY_BEFORE_NAMESPACE();
namespace fq::HWY_NAMESPACE {
namespace {

/// Adds squared errors for a vector of ranges, one element after the other.
template <class Candidate>
void sum_squares(const float* x, std::int64_t count, const Candidate& candidate, double* errors) {
  // Sums of 64 squares in f32 lose few bits and run at the full vector width. f64 sums take over then.
  constexpr std::int64_t run = 64;
  const FloatTag d;
  HWY_ALIGN float sums[HWY_MAX_BYTES / sizeof(float)];
  for (std::int64_t i = 0; i < count;) {
    FloatVector sum = hn::Zero(d);
    for (const std::int64_t end = std::min(count, i + run); i < end; ++i) {
      const FloatVector error = candidate.error(hn::Set(d, x[i]));
      sum = add_(sum, mul_(error, error));
    }
    hn::Store(sum, d, sums);
    for (std::size_t lane = 0; lane < hn::Lanes(d); ++lane) errors[lane] += static_cast<double>(sums[lane]);
  }
}

template <class Candidate>
void candidate_errors(const float* x, std::int64_t count, FloatVector amax, float lower, float bound,
                      double* errors) {
  sum_squares(x, count, Candidate(amax, lower, bound), errors);
}

bool within(FloatVector v, float least, float most) {
  const FloatTag d;
  return hn::AllTrue(d, and_(less_equal_(hn::Set(d, least), v), less_equal_(v, hn::Set(d, most))));
}

float largest_magnitude(const float* x, std::int64_t count) {
  const FloatTag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  FloatVector most = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) most = max_(abs_(hn::LoadU(d, x + i)), most);
  float out = hn::GetLane(hn::MaxOfLanes(d, most));
  for (; i < count; ++i) out = std::max(out, std::fabs(x[i]));
  return out;
}

/// Adds errors measured in steps, converted to errors of values.
// Dividing by the square of the scale at the end saves a division per element. The caller has checked that
// the scale's square neither overflows nor vanishes in f64.
void code_errors(const float* x, std::int64_t count, FloatVector amax, FloatVector scale, float lower,
                 float bound, double* errors) {
  const FloatTag d;
  const auto low = hn::Set(d, lower), high = hn::Set(d, bound);
  HWY_ALIGN float scales[HWY_MAX_BYTES / sizeof(float)];
  hn::Store(scale, d, scales);
  // No candidate clips: the clamp can be left out.
  if (lower < 0 && within(amax, largest_magnitude(x, count), std::numeric_limits<float>::max()))
    sum_squares(x, count, CodeCandidate<FloatVector, false>{scale, low, high}, errors);
  else
    sum_squares(x, count, CodeCandidate<FloatVector, true>{scale, low, high}, errors);
  for (std::size_t lane = 0; lane < hn::Lanes(d); ++lane)
    errors[lane] /= static_cast<double>(scales[lane]) * static_cast<double>(scales[lane]);
}

void integer_errors(const float* x, std::int64_t count, FloatVector amax, float lower, float bound,
                    double* errors) {
  const IntegerCandidate<FloatVector> candidate(amax, lower, bound);
  // From fastest to slowest: errors in steps, a division by multiplication with correction, and a true
  // division.
  if (bound <= CodeCandidate<FloatVector, true>::most_codes && within(candidate.scale, 0x1p-100f, 0x1p100f))
    return code_errors(x, count, amax, candidate.scale, lower, bound, errors);
  if (kFused && hn::AllTrue(FloatTag(), divides_exactly(candidate.divisor)))
    return sum_squares(x, count, candidate, errors);
  candidate_errors<DividedCandidate<FloatVector>>(x, count, amax, lower, bound, errors);
}

void SquaredErrors(const float* x, std::int64_t count, const float* amax, std::int64_t candidates,
                   const Format& format, double* errors) {
  const FloatTag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto sum = format.is_integer()                      ? integer_errors
                   : format.floating() == FloatFormat{4, 3} ? candidate_errors<E4m3Candidate<FloatVector>>
                                                            : candidate_errors<Fp4Candidate<FloatVector>>;
  for (std::int64_t k = 0; k < candidates; k += lanes) {
    HWY_ALIGN float ranges[HWY_MAX_BYTES / sizeof(float)] = {};
    double sums[HWY_MAX_BYTES / sizeof(float)] = {};
    const std::int64_t some = std::min(lanes, candidates - k);
    // Candidates are lanes: each element of x is loaded once for a vector of candidates.
    std::fill_n(std::copy_n(amax + k, some, ranges), lanes - some, 1.0f);
    sum(x, count, hn::Load(d, ranges), format.lower(), format.bound(), sums);
    for (std::int64_t i = 0; i < some; ++i) errors[k + i] += sums[i];
  }
}

}  // namespace
}  // namespace fq::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fq {
HWY_EXPORT(SquaredErrors);

namespace cpu {

void add_squared_errors(std::span<const float> x, std::span<const float> amax, const Format& format,
                        double* errors) {
  HWY_DYNAMIC_DISPATCH(SquaredErrors)
  (x.data(), static_cast<std::int64_t>(x.size()), amax.data(), static_cast<std::int64_t>(amax.size()), format,
   errors);
}

}  // namespace cpu
}  // namespace fq
#endif
