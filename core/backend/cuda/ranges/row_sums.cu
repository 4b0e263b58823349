#include <cmath>
#include <vector>

#include "fakequant/core/backend/cuda/loops/launch.cuh"
#include "fakequant/core/backend/cuda/loops/reduction_shape.h"
#include "fakequant/core/backend/cuda/loops/tensor_data.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/numerics/detail/formulas.h"
#include "fakequant/core/numerics/detail/range_formulas.h"

namespace fq::cuda {
namespace {

/// Parts of rows. Part p belongs to row p / per_row.
// Parts of 4096 elements, as on the host, so that sums have the same order and bits.
struct RowParts {
  static constexpr std::int64_t size = 4096;
  const float* x;
  std::int64_t rows, length, per_row;

  explicit RowParts(const fq::detail::RangeRows& of)
      : x(device_data<float>(of.values)),
        rows(of.count()),
        length(of.length()),
        per_row((of.length() + size - 1) / size) {}
  [[nodiscard]] FQ_HD std::int64_t row(std::int64_t part) const { return quotient(part, per_row); }
  [[nodiscard]] FQ_HD std::int64_t begin(std::int64_t part) const {
    return (part - row(part) * per_row) * size;
  }
  [[nodiscard]] FQ_HD const float* first(std::int64_t part) const {
    return x + row(part) * length + begin(part);
  }
  [[nodiscard]] FQ_HD int count(std::int64_t part) const {
    const std::int64_t left = length - begin(part);
    return static_cast<int>(left < size ? left : size);
  }
};

/// Adds partial sums. Item i = row * width + k: sums[i] += partial[part - first][k] of the parts [first,
/// last) of its row.
struct AddParts {
  const double* partial;
  double* sums;
  std::int64_t width, per_row, first, last;

  FQ_HD void operator()(std::int64_t i) const {
    const std::int64_t row = quotient(i, width), k = i - row * width;
    const std::int64_t from = row * per_row, to = from + per_row;
    // One thread adds the parts of a row in order.
    double sum = sums[i];
    for (std::int64_t part = from < first ? first : from; part < to && part < last; ++part)
      sum += partial[(part - first) * width + k];
    sums[i] = sum;
  }
};

/// Adds the results of fill(first, count, out) to sums[r * width ..]. fill writes out[p * width + k] for the
/// parts first + p.
template <class Fill>
void add_parts(const fq::detail::RangeRows& rows, std::int64_t width, std::vector<double>& sums,
               Fill&& fill) {
  // Bounds the memory of the partial sums to 64 MB.
  constexpr std::int64_t most_bytes = std::int64_t{1} << 26;
  const Device device = rows.values.device();
  const RowParts parts(rows);
  const std::int64_t all = parts.rows * parts.per_row;
  const std::int64_t chunk = std::clamp<std::int64_t>(most_bytes / (8 * width), 1, all);
  Tensor total = Tensor::from(sums, {static_cast<std::int64_t>(sums.size())}).to(device);
  Tensor partial = Tensor::empty({chunk, width}, DType::f64, device);
  auto* own = mutable_device_data<double>(partial);
  for (std::int64_t first = 0; first < all; first += chunk) {
    const std::int64_t last = std::min(all, first + chunk);
    fill(first, last - first, own);
    launch_each(device, parts.rows * width,
                AddParts{own, updated_device_data<double>(total), width, parts.per_row, first, last});
  }
  sums = total.to_vector<double>();
}

/// Sums one part per block. Each of `lanes` sums takes every `lanes`-th element in order.
template <int lanes, bool magnitudes>
struct SumPart {
  static constexpr int phases = 3, width = magnitudes ? 2 : 1;
  struct Shared {
    float x[RowParts::size];
    double sums[lanes];
    int zeros[lanes];
  };
  RowParts parts;
  bool skip_zeros;
  std::int64_t first;
  double* out;

  FQ_HD void add_lane(int lane, int count, Shared& shared) const {
    double sum = 0;
    int zeros = 0;
    for (int i = lane; i < count; i += lanes) {
      const auto v = static_cast<double>(shared.x[i]);
      sum += magnitudes ? std::fabs(v) : v;
      zeros += shared.x[i] == 0 ? 1 : 0;
    }
    shared.sums[lane] = sum;
    shared.zeros[lane] = zeros;
  }

  FQ_HD void add_lanes(std::int64_t part, int count, const Shared& shared) const {
    double sum = 0;
    for (int lane = 0; lane < lanes; ++lane) {
      sum += shared.sums[lane];
      if (skip_zeros) count -= shared.zeros[lane];
    }
    out[part * width] = sum;
    if (magnitudes) out[part * width + 1] = count;
  }

  template <int Phase>
  FQ_HD void phase(Thread t, Shared& shared) const {
    const std::int64_t part = first + t.block;
    const int count = parts.count(part);
    // All threads load the part to shared memory. Then few threads add, in the host's order.
    if (Phase == 0)
      for (int i = t.thread; i < count; i += block_threads) shared.x[i] = parts.first(part)[i];
    if (Phase == 1 && t.thread < lanes) add_lane(t.thread, count, shared);
    if (Phase == 2 && t.thread == 0) add_lanes(t.block, count, shared);
  }
};

template <int lanes, bool magnitudes>
void add(const fq::detail::RangeRows& rows, bool skip_zeros, std::vector<double>& sums) {
  using Sum = SumPart<lanes, magnitudes>;
  add_parts(rows, Sum::width, sums, [&](std::int64_t first, std::int64_t count, double* out) {
    launch_blocks(rows.values.device(), count, Sum{RowParts(rows), skip_zeros, first, out});
  });
}

enum class Kind : unsigned char { integer, e4m3, fp4 };

/// Returns the sum of squares. Sums of 64 squares are computed in f32 and added in double.
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

/// Computes the errors of parts. Item i = part * width + k, with parts counted from `first`.
// Candidates are the inner index: neighbouring threads read the same part.
struct PartErrors {
  Errors errors;
  RowParts parts;
  const float *amax, *multiples;
  std::int64_t width, first;
  double* out;

  FQ_HD void operator()(std::int64_t i) const {
    const std::int64_t own = quotient(i, width), part = first + own;
    const float range = fq::detail::amax_multiple(amax[parts.row(part)], multiples[i - own * width]);
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

void add_magnitudes(const fq::detail::RangeRows& rows, bool skip_zeros, std::vector<double>& sums) {
  // Eight sums per part, as in the host's add_part.
  add<8, true>(rows, skip_zeros, sums);
}

void add_values(const fq::detail::RangeRows& rows, std::vector<double>& sums) {
  add<1, false>(rows, false, sums);
}

void add_errors(const fq::detail::RangeRows& rows, const Tensor& amax, const std::vector<float>& multiples,
                const Format& format, std::vector<double>& sums) {
  const Device device = rows.values.device();
  const Tensor largest = amax.to(device), factors = list(multiples, device);
  const auto width = factors.numel();
  add_parts(rows, width, sums, [&](std::int64_t first, std::int64_t count, double* out) {
    launch_each(device, count * width,
                PartErrors{Errors(format), RowParts(rows), device_data<float>(largest),
                           device_data<float>(factors), width, first, out});
  });
}

void sweep_ranges(const fq::detail::RangeRows& rows, const std::vector<float>& ranges, float largest,
                  const Format& format, Tensor& amax) {
  const Device device = rows.values.device();
  const Tensor candidates = list(ranges, device);
  launch_each(
      device, rows.count(),
      SweepRow{Errors(format), device_data<float>(rows.values), device_data<float>(candidates), rows.length(),
               static_cast<int>(ranges.size()), largest, updated_device_data<float>(amax)});
}

}  // namespace fq::cuda
