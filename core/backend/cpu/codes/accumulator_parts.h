#pragma once

/// What both readings of an accumulator, as codes and as floats, take from it.

#include <algorithm>
#include <cmath>
#include <vector>

#include "fakequant/core/accumulator.h"
#include "fakequant/core/backend/cpu/codes/code_kernels.h"
#include "fakequant/core/backend/cpu/codes/sum_kernels.h"
#include "fakequant/core/blocks/detail/channel_runs.h"
#include "fakequant/core/blocks/detail/channels.h"
#include "fakequant/core/numerics/detail/sum_formulas.h"

namespace fq::cpu {

/// Calls f(begin, count) for stretches of all elements, in parallel.
template <class F>
void for_stretches(const Tensor& x, F&& f) {
  for_runs(x.numel(), {1, x.numel()},
           [&](std::int64_t begin, std::int64_t end, std::int64_t) { f(begin, end - begin); });
}

inline CodeArray codes_of(const QuantizedTensor& x, std::int64_t begin) {
  return CodeArray{x.codes.raw(), x.codes.dtype()}.from(begin);
}

inline float scale_of(const QuantizedTensor& x) { return x.grid.scale.data<float>()[0]; }

/// One for every channel.
inline std::vector<float> scales_of(const ProductSums& x) {
  auto scales = x.scale.to_vector<float>();
  const auto channels = Channels::of(x.sums.shape(), x.sums.layout(), x.axis).channels;
  if (scales.size() == 1) scales.assign(static_cast<std::size_t>(channels), scales[0]);
  return scales;
}

/// One sum and its bias code, and its value; the numbers are those of channel `c`.
inline float biased_sum(std::int32_t sum, const SumValues& v, std::int64_t c) {
  return static_cast<float>(sum + (v.bias != nullptr ? v.bias[c] : 0));
}
inline float sum_value(float a, const SumValues& v, std::int64_t c) {
  return v.shift != nullptr ? scalar::normalized_sum(a, v.scale[c], v.shift[c])
                            : scalar::dequantize_code(a, v.scale[c]);
}

inline float pooled_scale(const PooledSums& x) {
  return detail::pooled_scale(x.scale.data<float>()[0], static_cast<float>(x.count));
}

inline bool has_nan(const Tensor& numbers) {
  const auto* v = numbers.data<float>();
  return std::any_of(v, v + numbers.numel(), [](float x) { return std::isnan(x); });
}

/// Integers are never NaN: only what batch normalization multiplies them by and adds.
inline bool may_be_nan(const Accumulator& x) {
  const auto* normalized = std::get_if<NormalizedSums>(&x.value);
  return normalized != nullptr && (has_nan(normalized->factor) || has_nan(normalized->shift));
}

}  // namespace fq::cpu
