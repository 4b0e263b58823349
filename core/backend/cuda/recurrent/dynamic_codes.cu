#include "fakequant/core/backend/cuda/loops/atomics.cuh"
#include "fakequant/core/backend/cuda/loops/channels.cuh"
#include "fakequant/core/backend/cuda/loops/launch.cuh"
#include "fakequant/core/backend/cuda/loops/tensor_data.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/numerics/detail/recurrent_formulas.h"

namespace fq::cuda {
namespace {

using fq::detail::DynamicGrid;
using fq::detail::quotient;

// The range always includes 0, as in ONNX's DynamicQuantizeLinear.
struct PutGrid {
  float* grids;
  Alarm alarm;
  FQ_HD void operator()(std::int64_t range, const RowEnds& ends) const {
    if (ends.nan) raise(alarm);
    const auto grid = DynamicGrid::of(ends.low, ends.high);
    grids[2 * range] = grid.scale;
    grids[2 * range + 1] = grid.zero;
  }
};

/// Grids of rows in memory order. A row uses the range row % ranges.
struct RowGrids {
  const float* grids;
  std::int64_t width, ranges;
  [[nodiscard]] FQ_HD DynamicGrid at(std::int64_t i) const {
    const std::int64_t row = quotient(i, width), range = row - quotient(row, ranges) * ranges;
    return {grids[2 * range], grids[2 * range + 1]};
  }
};

RowGrids row_grids(const Tensor& rows, const Tensor& grids) {
  return {device_data<float>(grids), rows.dim(1), grids.dim(0)};
}

// Codes need the range of the whole row, so they are a second pass.
struct Code {
  RowGrids grids;
  const float* x;
  std::uint8_t* codes;
  FQ_HD void operator()(std::int64_t i) const { codes[i] = grids.at(i).code(x[i]); }
};

struct Value {
  RowGrids grids;
  const std::uint8_t* codes;
  float* out;
  FQ_HD void operator()(std::int64_t i) const { out[i] = grids.at(i).value(codes[i]); }
};

// fl(fl(sum - zero * weights) * fl(scale * w_scale)), with the row's grid.
struct Sum {
  RowGrids grids;
  const std::int32_t *sums, *weights;
  const float* scales;
  std::int64_t step;
  float* out;
  FQ_HD void operator()(std::int64_t i) const {
    const std::int64_t c = i - quotient(i, grids.width) * grids.width;
    out[i] = grids.at(i).sum(sums[i], weights[c], scales[c * step]);
  }
};

}  // namespace

void dynamic_codes(const Tensor& x, Tensor& codes, Tensor& grids, const std::string& nan_text) {
  const Device device = x.device();
  // Channels are the ranges: rows r, r + ranges, .. share one. A single range is one channel of all elements.
  reduce_channels(device, {grids.dim(0), grids.dim(0) == 1 ? 1 : x.dim(1), x.numel()},
                  FindRowEnds{device_data<float>(x)},
                  PutGrid{mutable_device_data<float>(grids), alarm(device, nan_text)});
  launch_each(device, x.numel(),
              Code{row_grids(x, grids), device_data<float>(x), mutable_device_data<std::uint8_t>(codes)});
}

void dynamic_values(const Tensor& codes, const Tensor& grids, Tensor& out) {
  launch_each(
      codes.device(), codes.numel(),
      Value{row_grids(codes, grids), device_data<std::uint8_t>(codes), mutable_device_data<float>(out)});
}

void dynamic_sums(const Tensor& sums, const Tensor& weights, const Tensor& grids, const Tensor& w_scale,
                  Tensor& out) {
  launch_each(
      sums.device(), sums.numel(),
      Sum{row_grids(sums, grids), device_data<std::int32_t>(sums), device_data<std::int32_t>(weights),
          device_data<float>(w_scale), w_scale.numel() == 1 ? 0 : 1, mutable_device_data<float>(out)});
}

}  // namespace fq::cuda
