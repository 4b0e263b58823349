#include "fakequant/core/numerics/detail/range_formulas.h"
#include "fakequant/core/backend/cuda/loops/tensor_data.h"
#include "fakequant/core/backend/cuda/ranges/row_parts.cuh"
#include "fakequant/core/backend/cuda/ranges/row_sums.h"
#include "fakequant/core/numerics/detail/histogram_formulas.h"

namespace fq::cuda {
namespace {

enum class Kind : unsigned char { integer, e4m3, fp4 };

/// Squares of 64 elements are added in f32, such sums in double.
template <class Candidate>
FQ_HD double sum_squares(const float* x, std::int64_t count, const Candidate& candidate) {
  constexpr std::int64_t run = 64;
  double total = 0;
  for (std::int64_t i = 0; i < count;) {
    float sum = 0;
    for (const std::int64_t end = i + run < count ? i + run : count; i < end; ++i) {
      const float error = candidate.error(x[i]);
      sum = scalar::add_(sum, scalar::mul_(error, error));
    }
    total += static_cast<double>(sum);
  }
  return total;
}

struct Errors {
  Kind kind;
  float lower, bound;

  explicit Errors(const Format& format)
      : kind(format.is_integer()                      ? Kind::integer
             : format.floating() == FloatFormat{4, 3} ? Kind::e4m3
                                                      : Kind::fp4),
        lower(format.lower()),
        bound(format.bound()) {}

  FQ_HD double integer(const float* x, std::int64_t count, float amax) const {
    const scalar::IntegerCandidate<float> candidate(amax, lower, bound);
    const float scale = candidate.scale;
    using Steps = scalar::CodeCandidate<float, true>;
    if (bound <= Steps::most_codes && 0x1p-100f <= scale && scale <= 0x1p100f) {
      const auto wide = static_cast<double>(scale);
      return sum_squares(x, count, Steps{scale, lower, bound}) / (wide * wide);
    }
    if (scalar::divides_exactly(candidate.divisor)) return sum_squares(x, count, candidate);
    return sum_squares(x, count, scalar::DividedCandidate<float>(amax, lower, bound));
  }
  FQ_HD double operator()(const float* x, std::int64_t count, float amax) const {
    switch (kind) {
      case Kind::integer:
        return integer(x, count, amax);
      case Kind::e4m3:
        return sum_squares(x, count, scalar::E4m3Candidate<float>(amax, lower, bound));
      default:
        return sum_squares(x, count, scalar::Fp4Candidate<float>(amax, lower, bound));
    }
  }
};

/// Item i = part * width + k, parts counted from `first`.
struct PartErrors {
  Errors errors;
  RowParts parts;
  const float *amax, *multiples;
  std::int64_t width, first;
  double* out;

  FQ_HD void operator()(std::int64_t i) const {
    const std::int64_t own = quotient(i, width), part = first + own;
    const float range = fq::detail::multiple_of(amax[parts.row(part)], multiples[i - own * width]);
    out[i] = errors(parts.first(part), parts.count(part), range);
  }
};

struct SweepRow {
  Errors errors;
  const float *x, *ranges;
  std::int64_t length;
  int count;
  float largest;
  float* amax;

  FQ_HD void operator()(std::int64_t row) const {
    if (amax[row] == largest) return;
    double least = errors(x + row * length, length, ranges[0]);
    int best = 0;
    for (int k = 1; k < count; ++k) {
      const double error = errors(x + row * length, length, ranges[k]);
      if (error < least) {
        least = error;
        best = k;
      }
    }
    amax[row] = ranges[best];
  }
};

Tensor list(const std::vector<float>& values, Device device) {
  return Tensor::from(values, {static_cast<std::int64_t>(values.size())}).to(device);
}

}  // namespace

void add_errors(const cpu::Rows& rows, const Tensor& amax, const std::vector<float>& multiples,
                const Format& format, std::vector<double>& sums) {
  const Device device = rows.values.device();
  const Tensor largest = amax.to(device), factors = list(multiples, device);
  const auto width = factors.numel();
  add_parts(rows, width, sums, [&](std::int64_t first, std::int64_t count, double* out) {
    for_items(device, count * width,
              PartErrors{Errors(format), RowParts(rows), data_of<float>(largest), data_of<float>(factors),
                         width, first, out});
  });
}

void sweep_ranges(const cpu::Rows& rows, const std::vector<float>& ranges, float largest,
                  const Format& format, Tensor& amax) {
  const Device device = rows.values.device();
  const Tensor candidates = list(ranges, device);
  for_items(device, rows.count(),
            SweepRow{Errors(format), data_of<float>(rows.values), data_of<float>(candidates), rows.length(),
                     static_cast<int>(ranges.size()), largest, static_cast<float*>(amax.mutable_raw())});
}

}  // namespace fq::cuda
