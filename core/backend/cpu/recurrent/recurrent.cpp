#include <algorithm>
#include <vector>

#include "fakequant/core/backend/cpu/elementwise/map.h"
#include "fakequant/core/backend/cpu/recurrent/step_kernels.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/error.h"
#include "fakequant/core/numerics/detail/recurrent_formulas.h"

namespace fq::cpu {
namespace {

/// Calls work(begin, end) for blocks of rows.
template <class Work>
void parallel_rows(std::int64_t rows, std::int64_t width, const Work& work) {
  // Blocks of about 1024 elements: small enough for all threads, large enough for one dispatch each.
  const std::int64_t block = std::max<std::int64_t>(1, 1024 / std::max<std::int64_t>(width, 1)),
                     blocks = (rows + block - 1) / block;
#pragma omp parallel for schedule(static) if (rows * width > parallel_elements / 4)
  for (std::int64_t b = 0; b < blocks; ++b) work(b * block, std::min(rows, (b + 1) * block));
}

}  // namespace

// gates, of_state: [rows, G * width], the products of the input and of the state with the weights. Only
// elementwise work remains.
void recurrent_step(detail::RecurrentStep& step) {
  const std::int64_t rows = step.state.dim(0), width = step.state.dim(1);
  if (step.state.dtype() == DType::f32)
    return parallel_rows(rows, width, [&, a = step.arrays<float>()](std::int64_t begin, std::int64_t end) {
      step_rows(step.kind, a, begin, end);
    });
  parallel_rows(rows, width, [&, a = step.arrays<double>()](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row)
      for (std::int64_t j = 0; j < width; ++j)
        scalar::recurrent_step(step.kind, a, row, j, detail::OneNumber<double>());
  });
}

void recurrent_step_backward(detail::RecurrentStepBackward& step) {
  const std::int64_t rows = step.dy.dim(0), width = step.dy.dim(1);
  if (step.dy.dtype() == DType::f32)
    return parallel_rows(rows, width, [&, a = step.arrays<float>()](std::int64_t begin, std::int64_t end) {
      gradient_rows(step.kind, a, begin, end);
    });
  parallel_rows(rows, width, [&, a = step.arrays<double>()](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row)
      for (std::int64_t j = 0; j < width; ++j)
        scalar::recurrent_gradient(step.kind, a, row, j, detail::OneNumber<double>());
  });
}

namespace {

using detail::DynamicGrid;

struct Ends {
  float low = 0, high = 0;
  bool nan = false;
};

// The range begins at [0, 0], so it includes 0. std::min and std::max skip a NaN, which `nan` reports.
Ends find_ends(const float* x, std::int64_t count) {
  float low = 0, high = 0;
  int nan = 0;
#pragma omp simd reduction(min : low) reduction(max : high) reduction(| : nan)
  for (std::int64_t i = 0; i < count; ++i) {
    low = std::min(low, x[i]);
    high = std::max(high, x[i]);
    nan |= x[i] != x[i] ? 1 : 0;
  }
  return {low, high, nan != 0};
}

Ends wider(const Ends& a, const Ends& b) {
  return {std::min(a.low, b.low), std::max(a.high, b.high), a.nan || b.nan};
}

DynamicGrid read_grid(const float* grids, std::int64_t i) { return {grids[2 * i], grids[2 * i + 1]}; }

/// Calls work(row, index of its range) for all rows.
template <class Work>
void parallel_rows(const Tensor& x, std::int64_t ranges, const Work& work) {
  const std::int64_t rows = x.dim(0);
#pragma omp parallel for schedule(static) if (x.numel() > parallel_elements)
  for (std::int64_t row = 0; row < rows; ++row) work(row, row % ranges);
}

}  // namespace

// Run-time quantization to u8 codes, as in ONNX's DynamicQuantizeLinear. Row r has range r % ranges.
void dynamic_codes(const Tensor& x, Tensor& codes, Tensor& grids, const std::string& nan_text) {
  const std::int64_t rows = x.dim(0), width = x.dim(1), ranges = grids.dim(0);
  const auto* in = x.data<float>();
  std::vector<Ends> own(static_cast<std::size_t>(rows)), ends(static_cast<std::size_t>(ranges));
  parallel_rows(x, ranges, [&](std::int64_t row, std::int64_t) {
    own[static_cast<std::size_t>(row)] = find_ends(in + row * width, width);
  });
  for (std::size_t row = 0; row < own.size(); ++row)
    // Minimum and maximum do not depend on the order, so any split over threads gives the same ranges.
    ends[row % ends.size()] = wider(ends[row % ends.size()], own[row]);
  auto* numbers = grids.mutable_data<float>();
  for (std::size_t i = 0; i < ends.size(); ++i) {
    if (ends[i].nan) throw NumericError(nan_text);
    const auto grid = DynamicGrid::of(ends[i].low, ends[i].high);
    numbers[2 * i] = grid.scale;
    numbers[2 * i + 1] = grid.zero;
  }
  auto* out = codes.mutable_data<std::uint8_t>();
  parallel_rows(x, ranges, [&](std::int64_t row, std::int64_t range) {
    const DynamicGrid grid = read_grid(numbers, range);
#pragma omp simd
    for (std::int64_t j = row * width; j < (row + 1) * width; ++j) out[j] = grid.code(in[j]);
  });
}

void dynamic_values(const Tensor& codes, const Tensor& grids, Tensor& out) {
  const std::int64_t width = codes.dim(1);
  const auto* in = codes.data<std::uint8_t>();
  const auto* numbers = grids.data<float>();
  auto* values = out.mutable_data<float>();
  parallel_rows(codes, grids.dim(0), [&](std::int64_t row, std::int64_t range) {
    const DynamicGrid grid = read_grid(numbers, range);
#pragma omp simd
    for (std::int64_t j = row * width; j < (row + 1) * width; ++j) values[j] = grid.value(in[j]);
  });
}

void dynamic_sums(const Tensor& sums, const Tensor& weights, const Tensor& grids, const Tensor& w_scale,
                  Tensor& out) {
  const std::int64_t width = sums.dim(1), step = w_scale.numel() == 1 ? 0 : 1;
  const auto* in = sums.data<std::int32_t>();
  const auto* of_weights = weights.data<std::int32_t>();
  const auto *numbers = grids.data<float>(), *scales = w_scale.data<float>();
  auto* values = out.mutable_data<float>();
  parallel_rows(sums, grids.dim(0), [&](std::int64_t row, std::int64_t range) {
    const DynamicGrid grid = read_grid(numbers, range);
#pragma omp simd
    for (std::int64_t c = 0; c < width; ++c)
      values[row * width + c] = grid.sum(in[row * width + c], of_weights[c], scales[c * step]);
  });
}

}  // namespace fq::cpu
