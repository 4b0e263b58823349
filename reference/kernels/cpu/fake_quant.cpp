#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include "fakequant/core/backend/cpu/ranges/range_kernels.h"
#include "fakequant/core/numerics/detail/formulas.h"
#include "fakequant/reference/detail/broadcast.h"
#include "fakequant/reference/detail/clipped.h"
#include "fakequant/reference/kernels/cpu/stretches.h"
#include "fakequant/reference/kernels/kernels.h"

namespace fq::cpu {
namespace {

bool any_nan(const Tensor& amax) {
  const float* a = amax.data<float>();
  return std::any_of(a, a + amax.numel(), [](float v) { return std::isnan(v); });
}

}  // namespace

void fake_quant_integer(const Tensor& x, const Tensor& amax, const Tensor& bound, const IntFormat& format,
                        Tensor& y, Tensor* mask) {
  detail::check_broadcast(x.shape(), amax.shape(), "fake_tensor_quant");
  const auto lower = static_cast<float>(format.lower()), upper = static_cast<float>(format.upper());
  // The table has the columns amax, scale, divisor, inverse and bound, all padded with 1.
  const std::int64_t count = padded(amax.numel());
  RangeTable table(5, amax.numel());
  const float* ranges = table.filled(0, amax);
  const Columns columns{table.column(1), table.column(2), table.column(3), table.filled(4, bound)};
  const bool divide =
      // A NaN range turns the guard for small ranges off, because the reference tests min(amax).
      integer_rows(ranges, count, upper, !any_nan(amax), table.column(1), table.column(2), table.column(3));
  run_stretches(x, amax.shape(), columns, y, mask, [&](const Stretch& stretch, const Columns& at) {
    fake_quant(stretch, IntegerRows{at, lower, upper, divide});
  });
}

void integer_codes(const Tensor& x, const Tensor& amax, const IntFormat& format, Tensor& codes) {
  const auto lower = static_cast<float>(format.lower()), upper = static_cast<float>(format.upper());
  const bool guard = !any_nan(amax);
  std::vector<float> scales;
  for (const float a : amax.to_vector<float>()) scales.push_back(scalar::modelopt_scale(a, upper, guard));
  detail::map_blocks(x, detail::broadcast_block(x.shape(), amax.shape(), "tensor_quant"), codes,
                     [&, s = scales.data()](const float* in, float* out, auto count, auto j, auto step) {
                       for (std::int64_t k = 0; k < count; ++k)
                         out[k] = scalar::modelopt_code(in[k], s[j + k * step], lower, upper);
                     });
}

void fake_quant_e4m3(const Tensor& x, const Tensor& amax, const Tensor& bound, Tensor& y, Tensor* mask) {
  const bool scaled = amax.defined();
  detail::check_broadcast(x.shape(), amax.shape(), "scaled_e4m3");
  const std::int64_t ranges = scaled ? amax.numel() : 1;
  RangeTable table(4, ranges);
  // Without a range: scale 1, and a bound that masks only NaN.
  const Tensor one = Tensor::scalar(1), unbounded = Tensor::scalar(std::numeric_limits<double>::infinity());
  const Columns columns{table.filled(1, one), nullptr, table.filled(2, one),
                        table.filled(3, scaled ? bound : unbounded)};
  if (scaled) e4m3_rows(table.filled(0, amax), padded(ranges), table.column(1), table.column(2));
  run_stretches(x, amax.shape(), columns, y, mask,
                [&](const Stretch& stretch, const Columns& at) { fake_quant(stretch, E4m3Rows{at}); });
}

void round_to_integers(const Tensor& x, float lower, float upper, Tensor& y, Tensor* mask) {
  const IntegerCast cast{lower, upper};
  run_stretches(x, Columns{}, y, mask,
                [&](const Stretch& stretch, const Columns&) { fake_quant(stretch, cast); });
}

// `magnitude` is the maximum of the bits of |x|, where NaN exceeds every number.
float smallest(const Tensor& x) {
  Extremes all{0, std::numeric_limits<float>::infinity()};
  std::array<float, detail::chunk_elements> buffer;
  for (std::int64_t begin = 0; begin < x.numel(); begin += detail::chunk_elements) {
    const std::int64_t count = std::min(detail::chunk_elements, x.numel() - begin);
    const Extremes found = extremes(detail::read_floats(x, begin, count, buffer.data()), count);
    all = {std::max(all.magnitude, found.magnitude), std::min(all.minimum, found.minimum)};
  }
  const auto largest = std::bit_cast<float>(all.magnitude);
  return scalar::is_nan_(largest) ? largest : all.minimum;
}

namespace {

Shape bound_block(const Tensor& x, const Tensor& bound) {
  return detail::broadcast_block(x.shape(), bound.shape(), "clip");
}

// Returns the sum of g where selected(v, bound). Eight sums in double: the order is fixed, and the compiler
// can use vectors.
template <class F>
double selected_sum(const float* v, const float* g, std::int64_t count, float bound, F&& selected) {
  constexpr std::int64_t lanes = 8;
  std::array<double, lanes> sums{};
  std::int64_t k = 0;
  for (; k + lanes <= count; k += lanes)
    for (std::int64_t lane = 0; lane < lanes; ++lane)
      sums[static_cast<std::size_t>(lane)] +=
          static_cast<double>(selected(v[k + lane], bound) ? g[k + lane] : 0.0f);
  for (; k < count; ++k) sums[0] += static_cast<double>(selected(v[k], bound) ? g[k] : 0.0f);
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

template <class F>
void sum_selected(const Tensor& x, const Tensor& dy, const Tensor& bound, Tensor& sums, F selected) {
  const auto *b = bound.data<float>(), *g = dy.data<float>();
  auto* to = sums.mutable_data<double>();
  std::fill_n(to, sums.numel(), 0.0);
  detail::visit_chunks(x, bound_block(x, bound),
                       [&](const float* v, auto begin, auto count, auto j, auto step) {
                         double* sum = to + j;
                         // step 0: all elements of the chunk share one bound. Otherwise element k has bound j
                         // + k.
                         if (step == 0) *sum += selected_sum(v, g + begin, count, b[j], selected);
                         for (std::int64_t k = 0; k < count * step; ++k)
                           sum[k] += static_cast<double>(selected(v[k], b[j + k]) ? g[begin + k] : 0.0f);
                       });
}

}  // namespace

void fill_amax_mask(const Tensor& x, const Tensor& amax, Tensor& mask) {
  const auto* a = amax.data<float>();
  detail::fill_mask(
      x, bound_block(x, amax), [a](float v, auto j) { return scalar::modelopt_mask(v, a[j]); }, mask);
}

void fill_range_mask(const Tensor& x, const Tensor& lower, const Tensor& upper, Tensor& mask) {
  const auto *low = lower.data<float>(), *high = upper.data<float>();
  detail::fill_mask(
      x, bound_block(x, lower), [=](float v, auto j) { return scalar::mask_open(v, low[j], high[j]); }, mask);
}

void clip(const Tensor& x, const Tensor& lower, const Tensor& upper, Tensor& y) {
  const auto *low = lower.data<float>(), *high = upper.data<float>();
  detail::map_blocks(x, bound_block(x, lower), y,
                     [&](const float* in, float* out, auto count, auto j, auto step) {
                       for (std::int64_t k = 0; k < count; ++k)
                         out[k] = scalar::clip_value(in[k], low[j + k * step], high[j + k * step]);
                     });
}

void sum_beyond(const Tensor& x, const Tensor& dy, const Tensor& bound, bool above, Tensor& sums) {
  if (above) return sum_selected(x, dy, bound, sums, std::greater_equal<>());
  sum_selected(x, dy, bound, sums, std::less_equal<>());
}

}  // namespace fq::cpu
