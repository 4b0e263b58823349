#include "fakequant/core/backend/cpu/ranges/row_sums.h"

#include <algorithm>
#include <cmath>

#include "fakequant/core/backend/cpu/ranges/search_kernels.h"
#include "fakequant/core/detail/threads.h"
#include "fakequant/core/numerics/detail/range_formulas.h"

namespace fq::cpu {
namespace {

/// Sum of |x|, and how many there are.
void add_part(const float* x, std::int64_t count, bool skip_zeros, double* out) {
  double lanes[8] = {};
  std::int64_t zeros = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    lanes[i % 8] += std::fabs(static_cast<double>(x[i]));
    zeros += x[i] == 0 ? 1 : 0;
  }
  for (const double lane : lanes) out[0] += lane;
  out[1] += static_cast<double>(count - (skip_zeros ? zeros : 0));
}

}  // namespace

void add_magnitudes(const Rows& rows, bool skip_zeros, std::vector<double>& sums) {
  add_row_sums(rows, 2, sums.data(),
               [skip_zeros](std::int64_t, const float* v, std::int64_t count, double* out) {
                 add_part(v, count, skip_zeros, out);
               });
}

void add_values(const Rows& rows, std::vector<double>& sums) {
  add_row_sums(rows, 1, sums.data(), [](std::int64_t, const float* x, std::int64_t count, double* out) {
    for (std::int64_t i = 0; i < count; ++i) *out += static_cast<double>(x[i]);
  });
}

void add_errors(const Rows& rows, const Tensor& amax, const std::vector<float>& multiples,
                const Format& format, std::vector<double>& sums) {
  const auto* largest = amax.data<float>();
  add_row_sums(rows, static_cast<std::int64_t>(multiples.size()), sums.data(),
               [&](std::int64_t r, const float* x, std::int64_t count, double* out) {
                 std::vector<float> candidates(multiples);
                 for (float& c : candidates) c = detail::multiple_of(largest[r], c);
                 add_squared_errors({x, static_cast<std::size_t>(count)}, candidates, format, out);
               });
}

void sweep_ranges(const Rows& rows, const std::vector<float>& ranges, float largest, const Format& format,
                  Tensor& amax) {
  auto* own = amax.mutable_data<float>();
  const auto sweep = [&](std::int64_t r) {
    if (own[r] == largest) return;
    std::vector<double> errors(ranges.size());
    add_squared_errors({rows.row(r), static_cast<std::size_t>(rows.length())}, ranges, format, errors.data());
    own[r] = ranges[static_cast<std::size_t>(std::ranges::min_element(errors) - errors.begin())];
  };
  detail::FirstError error;
#pragma omp parallel for schedule(static)
  for (std::int64_t r = 0; r < rows.count(); ++r) error.keep([&] { sweep(r); });
  error.rethrow();
}

}  // namespace fq::cpu
