#include <algorithm>
#include <functional>
#include <numeric>

#include "fakequant/core/numerics/detail/formulas.h"
#include "fakequant/reference/detail/clipped.h"
#include "fakequant/reference/kernels/kernels.h"

namespace fq::cpu {
namespace {

Shape block_of(const Tensor& x, const Tensor& bound) {
  return detail::broadcast_block(x.shape(), bound.shape(), "clip");
}

/// The sum of g where selected(v, bound), in double, in as many lanes as vectors like.
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
  detail::for_chunks(x, block_of(x, bound), [&](const float* v, auto begin, auto count, auto j, auto step) {
    double* sum = to + j;
    if (step == 0) *sum += selected_sum(v, g + begin, count, b[j], selected);
    for (std::int64_t k = 0; k < count * step; ++k)
      sum[k] += static_cast<double>(selected(v[k], b[j + k]) ? g[begin + k] : 0.0f);
  });
}

}  // namespace

void mask_within(const Tensor& x, const Tensor& amax, Tensor& mask) {
  const auto* a = amax.data<float>();
  detail::fill_mask(
      x, block_of(x, amax), [a](float v, auto j) { return scalar::modelopt_mask(v, a[j]); }, mask);
}

void mask_between(const Tensor& x, const Tensor& lower, const Tensor& upper, Tensor& mask) {
  const auto *low = lower.data<float>(), *high = upper.data<float>();
  detail::fill_mask(
      x, block_of(x, lower), [=](float v, auto j) { return scalar::mask_open(v, low[j], high[j]); }, mask);
}

void clip(const Tensor& x, const Tensor& lower, const Tensor& upper, Tensor& y) {
  const auto *low = lower.data<float>(), *high = upper.data<float>();
  detail::map_blocks(x, block_of(x, lower), y,
                     [&](const float* in, float* out, auto count, auto j, auto step) {
                       for (std::int64_t k = 0; k < count; ++k)
                         out[k] = scalar::clip_to(in[k], low[j + k * step], high[j + k * step]);
                     });
}

void sum_beyond(const Tensor& x, const Tensor& dy, const Tensor& bound, bool above, Tensor& sums) {
  if (above) return sum_selected(x, dy, bound, sums, std::greater_equal<>());
  sum_selected(x, dy, bound, sums, std::less_equal<>());
}

}  // namespace fq::cpu
