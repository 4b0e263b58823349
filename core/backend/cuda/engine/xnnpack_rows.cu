#include "fakequant/core/backend/cuda/engine/block_products.cuh"
#include "fakequant/core/backend/cuda/loops/atomics.cuh"
#include "fakequant/core/backend/cuda/loops/channels.cuh"
#include "fakequant/core/backend/kernel_arguments.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/numerics/detail/xnnpack_formulas.h"

namespace fq::cuda {
namespace {

using fq::detail::EngineOperand, fq::detail::ggml_block, fq::detail::XnnpackRow;

struct PutRowGrid {
  float *grids, *factors;
  Alarm alarm;
  FQ_HD void operator()(std::int64_t row, const RowEnds& ends) const {
    // The host throws NumericError for this alarm at the next wait.
    if (ends.nan) raise(alarm);
    const auto grid = XnnpackRow::of(ends.low, ends.high);
    factors[row] = grid.factor;
    grids[2 * row] = grid.inverse;
    grids[2 * row + 1] = grid.zero;
  }
};

/// The grid of an element's row. The factor of the grid is not stored.
struct XnnpackGrids {
  const float* grids;
  Divisor column_divisor;
  [[nodiscard]] FQ_HD XnnpackRow row_grid(std::int64_t row) const {
    return {0, grids[2 * row], grids[2 * row + 1]};
  }
  [[nodiscard]] FQ_HD XnnpackRow at(std::int64_t i) const { return row_grid(column_divisor.quotient(i)); }
};

// The factor is passed separately: 1 / inverse would be rounded twice.
struct XnnpackCodes {
  const float* x;
  const float* factors;
  XnnpackGrids grids;
  std::int8_t* codes;
  FQ_HD void operator()(std::int64_t i) const {
    const std::int64_t row = grids.column_divisor.quotient(i);
    codes[i] = fq::detail::xnnpack_code(x[i], factors[row], grids.grids[2 * row + 1]);
  }
};

struct XnnpackValues {
  const std::int8_t* codes;
  XnnpackGrids grids;
  float* values;
  FQ_HD void operator()(std::int64_t i) const { values[i] = grids.at(i).value(codes[i]); }
};

// One thread per output: the chunks of 16 columns are added in XNNPACK's order.
struct ZeroTerms {
  const std::int8_t* w;
  const float* scales;
  std::int64_t columns, blocks;
  float* terms;
  FQ_HD void operator()(std::int64_t n) const {
    const std::int64_t chunks = columns / fq::detail::xnnpack_chunk, in_block = chunks / blocks;
    float term = 0.0f;
    for (std::int64_t c = 0; c < chunks; ++c) {
      constexpr int words = fq::detail::xnnpack_chunk / 4;
      std::uint32_t chunk[words];
      load_group(reinterpret_cast<const std::uint32_t*>(w + n * columns + c * fq::detail::xnnpack_chunk),
                 words, chunk);
      std::int32_t sum = 0;
      for (const std::uint32_t four : chunk) sum = add_products(0x01010101u, four, sum);
      term = fq::detail::xnnpack_zero_term(term, sum, scales[n * blocks + quotient(c, in_block)]);
    }
    terms[n] = term;
  }
};

/// XNNPACK's qb4w kernel: the chain begins with the zero-point term, and the step of x and the bias come
/// last.
template <bool of_parts>
struct XnnpackChain {
  static constexpr bool shifted = true, scaled = false, single = of_parts;
  static constexpr int pairs = single ? 3 : 2;  // sums of longer blocks stay in registers
  XnnpackGrids grids;
  const float *terms, *bias;  // bias may be null
  FQ_HD float first_of_row(int row) const { return grids.row_grid(row).zero; }
  FQ_HD float first_of_output(int output) const { return terms[output]; }
  FQ_HD float last_of_row(int row) const { return grids.row_grid(row).inverse; }
  FQ_HD float last_of_output(int output) const { return bias == nullptr ? 0.0f : bias[output]; }
  FQ_HD float first(float zero, float term) const { return fq::detail::xnnpack_first(term, zero); }
  FQ_HD float next(float chain, std::int32_t sum, float, float w_scale) const {
    return scalar::fma_(static_cast<float>(sum), w_scale, chain);
  }
  FQ_HD float last(float chain, float inverse, float added) const {
    return XnnpackRow{0, inverse, 0}.block_sum(chain, added);
  }
};

// One scale per output: the sums are exact int32 products of the engine for codes.
struct ChannelSums {
  const std::int32_t *sums, *weights;
  XnnpackGrids grids;
  const float *scales, *bias;
  std::int64_t step;
  float* y;
  FQ_HD void operator()(std::int64_t i) const {
    std::int64_t row = i;
    const std::int64_t n = grids.column_divisor.take_remainder(row);
    const XnnpackRow grid = grids.row_grid(row);
    const std::int32_t centred = sums[i] - static_cast<std::int32_t>(grid.zero) * weights[n];
    y[i] = grid.channel_sum(centred, scales[n * step], bias == nullptr ? 0.0f : bias[n]);
  }
};

XnnpackGrids xnnpack_grids(const Tensor& grids, std::int64_t columns) {
  return {device_data<float>(grids), columns};
}

}  // namespace

void xnnpack_operand(const Tensor& codes, const Tensor& scales, EngineOperand& out) {
  const std::int64_t outputs = codes.dim(0);
  out.codes = aligned_codes(codes);
  out.scales = scales;
  out.zero_terms = Tensor::empty({outputs}, DType::f32, codes.device());
  if (outputs == 0) return;
  launch_each(codes.device(), outputs,
              ZeroTerms{device_data<std::int8_t>(out.codes), device_data<float>(scales), codes.dim(1),
                        scales.numel() / outputs, mutable_device_data<float>(out.zero_terms)});
}

void xnnpack_rows(const Tensor& x, const std::string& nan_text, Tensor& codes, Tensor& grids) {
  const Device device = x.device();
  const std::int64_t rows = x.dim(0), columns = x.dim(1);
  Tensor factors = Tensor::empty({rows}, DType::f32, device);
  // Each row is a channel of consecutive elements.
  reduce_channels(device, {rows, columns, x.numel()}, FindRowEnds{device_data<float>(x)},
                  PutRowGrid{mutable_device_data<float>(grids), mutable_device_data<float>(factors),
                             alarm(device, nan_text)});
  launch_each(device, x.numel(),
              XnnpackCodes{device_data<float>(x), device_data<float>(factors), xnnpack_grids(grids, columns),
                           mutable_device_data<std::int8_t>(codes)});
}

void xnnpack_values(const Tensor& codes, const Tensor& grids, Tensor& values) {
  launch_each(values.device(), values.numel(),
              XnnpackValues{device_data<std::int8_t>(codes), xnnpack_grids(grids, codes.dim(1)),
                            mutable_device_data<float>(values)});
}

void xnnpack_block_product(const Tensor& x, const Tensor& grids, const EngineOperand& w, const Tensor& bias,
                           Tensor& y) {
  if (y.numel() == 0) return;
  const Tensor codes = aligned_codes(x);
  const BlockRows rows(codes, Tensor()), outputs(w.codes, w.scales);
  const auto launch = [&]<bool single>(std::bool_constant<single>) {
    using Chain = XnnpackChain<single>;
    launch_product<TensorCoreProduct<Chain>>(
        y, rows, outputs,
        Chain{xnnpack_grids(grids, x.dim(1)), device_data<float>(w.zero_terms), device_data<float>(bias)});
  };
  if (outputs.in_block.value == 1)
    launch(std::true_type{});
  else
    launch(std::false_type{});
}

void xnnpack_channel_sums(const Tensor& sums, const Tensor& weights, const Tensor& grids, const Tensor& scale,
                          const Tensor& bias, Tensor& y) {
  launch_each(y.device(), y.numel(),
              ChannelSums{device_data<std::int32_t>(sums), device_data<std::int32_t>(weights),
                          xnnpack_grids(grids, y.dim(1)), device_data<float>(scale), device_data<float>(bias),
                          scale.numel() == 1 ? 0 : 1, mutable_device_data<float>(y)});
}

}  // namespace fq::cuda
