#include <cmath>
#include <limits>

#include "fakequant/calib/detail/histogram_methods.h"
#include "fakequant/calib/detail/ranges.h"
#include "fakequant/calib/histogram.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/format.h"

namespace fq {
namespace {

/// n of octav_amax: the noise of rounding within a clip of 1.
double noise(NumBits num_bits, bool is_unsigned) {
  FQ_CHECK(num_bits.is_integer(), "octav", "{} is a float format: use percentile, mse or mse_search",
           to_string(num_bits));
  (void)Format(IntFormat{num_bits.bits(), is_unsigned});
  return std::ldexp(1.0, -2 * num_bits.bits()) / (is_unsigned ? 12 : 3);
}

/// Sums of magnitudes on both sides of a clip s.
struct Sides {
  double below = 0, above = 0, magnitude = 0, squares = 0;

  void add(double v, double s, double count) {
    if (v > s) {
      above += count;
      magnitude += count * v;
      squares += count * (v - s) * (v - s);
    } else if (v > 0) {
      below += count;
    }
  }
  [[nodiscard]] double next(double n) const { return above > 0 ? magnitude / (n * below + above) : 0; }
  [[nodiscard]] double error(double n, double s) const { return n * s * s * below + squares; }
};

/// Newton's iteration of OCTAV (see histogram.h); `sides(s)` sums the values. The iteration may turn back, so
/// the clip with the smallest error decides and the number of steps is limited.
template <class SidesAt>
double best_clip(double n, const SidesAt& sides) {
  constexpr int most = 64;
  double best = 0, least = std::numeric_limits<double>::infinity(), s = 0;
  for (int i = 0; i < most; ++i) {
    const Sides at = sides(s);
    if (const double error = at.error(n, s); error < least) {
      least = error;
      best = s;
    }
    const double next = at.next(n);
    if (next == s) break;
    s = next;
  }
  return best;
}

}  // namespace

Tensor octav_amax(const Tensor& x, const Axes& axis, NumBits num_bits, bool is_unsigned) {
  const double n = noise(num_bits, is_unsigned);
  FQ_CHECK(x.defined() && x.numel() > 0 && is_floating(x.dtype()), "octav",
           "the tensor is empty or has no float type: use f32, f16, bf16 or f64");
  const Tensor values = x.to(Device::cpu()).to(DType::f32);
  detail::check_finite(detail::range(values).largest, "octav");
  const auto rows = detail::range_rows(values, axis, "octav");
  Tensor out = Tensor::empty(rows.shape);
  auto* amax = out.mutable_data<float>();
#pragma omp parallel for schedule(static)
  for (std::int64_t r = 0; r < rows.count(); ++r)
    amax[r] = static_cast<float>(best_clip(n, [&](double s) {
      Sides sides;
      for (std::int64_t i = 0; i < rows.length(); ++i)
        sides.add(std::fabs(static_cast<double>(rows.row(r)[i])), s, 1);
      return sides;
    }));
  return out;
}

float amax_by_octav(const Histogram& h, NumBits num_bits, bool is_unsigned) {
  const double n = noise(num_bits, is_unsigned);
  if (detail::is_empty(h, "octav")) return 0;
  return static_cast<float>(best_clip(n, [&](double s) {
    Sides sides;
    for (std::size_t k = 0; k < h.counts.size(); ++k) {
      // All values of a bin count as values at its center.
      const double centre = (static_cast<double>(h.edges[k]) + static_cast<double>(h.edges[k + 1])) / 2;
      sides.add(centre, s, static_cast<double>(h.counts[k]));
    }
    return sides;
  }));
}

}  // namespace fq
