#pragma once

/// Readers of accumulators in groups of eight elements. `values` returns floats; `codes` also returns
/// positions on a grid.

#include "fakequant/core/backend/cuda/codes/block_loads.cuh"
#include "fakequant/core/backend/cuda/codes/codes.cuh"
#include "fakequant/core/numerics/detail/sum_formulas.h"

namespace fq::cuda {

/// The grid for rounding sums.
struct SumGrid {
  float step;
  fq::detail::SumReader reader;
};

/// Products or, with `shift`, normalized sums. Arrays have one number per channel.
struct ChannelSums {
  const std::int32_t* sums;
  const std::int32_t* bias;  // may be null
  const float *scale, *shift;
  const float *multiplier, *offset;  // scale / step and shift / step, for codes
  AxisBlocks channels;

  FQ_HD void accumulators(std::int64_t first, int count, AxisBlocks::Place place,
                          float (&a)[group_size]) const {
    std::int32_t sum[group_size], add[group_size] = {};
    load_group(sums + first, count, sum);
    if (bias != nullptr) load_blocks(channels, place, bias, count, add);
    for (int j = 0; j < group_size; ++j) a[j] = j < count ? static_cast<float>(sum[j] + add[j]) : 0.0f;
  }
  /// Computes fl(a * m), or fma(a, m, t) if t is not null.
  FQ_HD void scaled(const float (&a)[group_size], int count, AxisBlocks::Place place, const float* m,
                    const float* t, float (&v)[group_size]) const {
    float factor[group_size], term[group_size] = {};
    load_blocks(channels, place, m, count, factor);
    if (t != nullptr) load_blocks(channels, place, t, count, term);
    for (int j = 0; j < group_size; ++j)
      v[j] = t != nullptr ? scalar::normalized_sum(a[j], factor[j], term[j])
                          : scalar::dequantize_code(a[j], factor[j]);
  }
  FQ_HD void values(std::int64_t first, int count, float (&v)[group_size]) const {
    const auto place = channels.place(first);
    float a[group_size];
    accumulators(first, count, place, a);
    scaled(a, count, place, scale, shift, v);
  }
  FQ_HD void codes(std::int64_t first, int count, const SumGrid& grid, bool with_values,
                   float (&q)[group_size], float (&v)[group_size]) const {
    const auto place = channels.place(first);
    float a[group_size];
    accumulators(first, count, place, a);
    if (with_values) scaled(a, count, place, scale, shift, v);
    scaled(a, count, place, multiplier, offset, q);
    for (int j = 0; j < group_size; ++j)
      q[j] = scalar::clamp_(scalar::rint_(q[j]), grid.reader.lower, grid.reader.upper);
  }
};

/// Values of channel sums plus floats.
struct SumsPlusFloats {
  ChannelSums sums;
  const float* x;

  FQ_HD void values(std::int64_t first, int count, float (&v)[group_size]) const {
    float other[group_size];
    sums.values(first, count, v);
    load_group(x + first, count, other);
    for (int j = 0; j < group_size; ++j) v[j] = scalar::add_(v[j], other[j]);
  }
};

struct PooledPixels {
  const std::int32_t* sums;
  const float* scale;
  float pixels;

  FQ_HD void scaled(std::int64_t first, int count, float m, float (&a)[group_size],
                    float (&v)[group_size]) const {
    load_converted(sums + first, count, a);
    for (int j = 0; j < group_size; ++j) v[j] = scalar::dequantize_code(a[j], m);
  }
  FQ_HD void values(std::int64_t first, int count, float (&v)[group_size]) const {
    float a[group_size];
    scaled(first, count, fq::detail::pooled_scale(*scale, pixels), a, v);
  }
  FQ_HD void codes(std::int64_t first, int count, const SumGrid& grid, bool, float (&q)[group_size],
                   float (&v)[group_size]) const {
    float a[group_size];
    scaled(first, count, fq::detail::pooled_scale(*scale, pixels), a, v);
    const float m = fq::detail::pooled_multiplier(*scale, pixels, grid.step);
    for (int j = 0; j < group_size; ++j)
      q[j] = scalar::requantize_code(a[j], m, grid.reader.lower, grid.reader.upper);
  }
};

/// Averages stored as floats. Their codes use a division and `offset`, the zero point in exported files.
struct AverageValues {
  const float* numbers;
  float offset;

  FQ_HD void values(std::int64_t first, int count, float (&v)[group_size]) const {
    load_group(numbers + first, count, v);
  }
  FQ_HD void codes(std::int64_t first, int count, const SumGrid& grid, bool, float (&q)[group_size],
                   float (&v)[group_size]) const {
    load_group(numbers + first, count, v);
    for (int j = 0; j < group_size; ++j)
      q[j] = scalar::average_code(v[j], grid.step, offset, grid.reader.lower, grid.reader.upper);
  }
};

struct AddedCodes {
  const void *a, *b;
  CodeFormat format_a, format_b;
  const float *scale_a, *scale_b;
  float offset_a, offset_b, offset_y;

  FQ_HD void values(std::int64_t first, int count, float (&v)[group_size]) const {
    float other[group_size];
    load_codes(a, format_a, first, count, v);
    load_codes(b, format_b, first, count, other);
    for (int j = 0; j < group_size; ++j)
      v[j] = fq::detail::addition_value(v[j], other[j], *scale_a, *scale_b);
  }
  FQ_HD void codes(std::int64_t first, int count, const SumGrid& grid, bool, float (&q)[group_size],
                   float (&v)[group_size]) const {
    float other[group_size];
    load_codes(a, format_a, first, count, v);
    load_codes(b, format_b, first, count, other);
    const auto sum = fq::detail::addition_grid(*scale_a, *scale_b, grid.step, offset_a, offset_b, offset_y);
    for (int j = 0; j < group_size; ++j) {
      q[j] = fq::detail::addition_code(v[j], other[j], sum, grid.reader);
      v[j] = fq::detail::addition_value(v[j], other[j], sum.scale_a, sum.scale_b);
    }
  }
};

}  // namespace fq::cuda
