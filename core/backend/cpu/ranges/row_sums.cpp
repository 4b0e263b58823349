#include <algorithm>
#include <cmath>
#include <functional>

#include "fakequant/core/backend/cpu/ranges/search_kernels.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/detail/threads.h"
#include "fakequant/core/numerics/detail/range_formulas.h"

namespace fq::cpu {
namespace {

using detail::RangeRows;

constexpr std::int64_t kPart = 4096, kParts = 4096;

/// Adds to sums[r * width ..] the `width` numbers that `part(r, x, count, out)` adds to `out`, initially 0,
/// for every part of row r. Parts of up to 4096 elements are computed in parallel and added in order. Memory:
/// 8 * width bytes for each of up to 4096 parts.
using RowPart = std::function<void(std::int64_t r, const float* x, std::int64_t count, double* out)>;
void add_row_sums(const RangeRows& rows, std::int64_t width, double* sums, const RowPart& part) {
  const std::int64_t length = rows.length(), per_row = (length + kPart - 1) / kPart;
  const std::int64_t parts = rows.count() * per_row;
  std::vector<double> own(static_cast<std::size_t>(std::min(parts, kParts) * width));
  detail::FirstError error;
  for (std::int64_t first = 0; first < parts; first += kParts) {
    const std::int64_t count = std::min(kParts, parts - first);
    std::ranges::fill(own, 0.0);
#pragma omp parallel for schedule(static) if (rows.values.numel() > kPart)
    for (std::int64_t k = 0; k < count; ++k) {
      const std::int64_t r = (first + k) / per_row, begin = (first + k) % per_row * kPart;
      error.keep(
          [&] { part(r, rows.row(r) + begin, std::min(kPart, length - begin), own.data() + k * width); });
    }
    error.rethrow();
    for (std::int64_t k = 0; k < count; ++k)
      for (std::int64_t i = 0; i < width; ++i)
        sums[(first + k) / per_row * width + i] += own[static_cast<std::size_t>(k * width + i)];
  }
}

/// Adds the sum of |x| and the number of elements.
void add_part(const float* x, std::int64_t count, bool skip_zeros, double* out) {
  double lanes[8] = {};
  std::int64_t zeros = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    // Eight independent sums hide the latency of addition and let the compiler vectorize. Their order is
    // fixed.
    lanes[i % 8] += std::fabs(static_cast<double>(x[i]));
    zeros += x[i] == 0 ? 1 : 0;
  }
  for (const double lane : lanes) out[0] += lane;
  out[1] += static_cast<double>(count - (skip_zeros ? zeros : 0));
}

}  // namespace

void add_magnitudes(const RangeRows& rows, bool skip_zeros, std::vector<double>& sums) {
  add_row_sums(rows, 2, sums.data(),
               [skip_zeros](std::int64_t, const float* v, std::int64_t count, double* out) {
                 add_part(v, count, skip_zeros, out);
               });
}

void add_values(const RangeRows& rows, std::vector<double>& sums) {
  add_row_sums(rows, 1, sums.data(), [](std::int64_t, const float* x, std::int64_t count, double* out) {
    for (std::int64_t i = 0; i < count; ++i) *out += static_cast<double>(x[i]);
  });
}

void add_errors(const RangeRows& rows, const Tensor& amax, const std::vector<float>& multiples,
                const Format& format, std::vector<double>& sums) {
  const auto* largest = amax.data<float>();
  add_row_sums(rows, static_cast<std::int64_t>(multiples.size()), sums.data(),
               [&](std::int64_t r, const float* x, std::int64_t count, double* out) {
                 std::vector<float> candidates(multiples);
                 for (float& c : candidates) c = detail::amax_multiple(largest[r], c);
                 add_squared_errors({x, static_cast<std::size_t>(count)}, candidates, format, out);
               });
}

void sweep_ranges(const RangeRows& rows, const std::vector<float>& ranges, float largest,
                  const Format& format, Tensor& amax) {
  auto* own = amax.mutable_data<float>();
  const auto sweep = [&](std::int64_t r) {
    if (own[r] == largest) return;
    std::vector<double> errors(ranges.size());
    add_squared_errors({rows.row(r), static_cast<std::size_t>(rows.length())}, ranges, format, errors.data());
    // min_element returns the first of equal errors.
    own[r] = ranges[static_cast<std::size_t>(std::ranges::min_element(errors) - errors.begin())];
  };
  detail::FirstError error;
#pragma omp parallel for schedule(static)
  for (std::int64_t r = 0; r < rows.count(); ++r) error.keep([&] { sweep(r); });
  error.rethrow();
}

}  // namespace fq::cpu
