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
      std::int32_t sum = 0;
      for (std::int64_t k = 0; k < fq::detail::xnnpack_chunk; ++k)
        sum += w[n * columns + c * fq::detail::xnnpack_chunk + k];
      term = fq::detail::xnnpack_zero_term(term, sum, scales[n * blocks + quotient(c, in_block)]);
    }
    terms[n] = term;
  }
};

// One thread per output of four rows: the weight is read once for them.
struct XnnpackBlocks {
  CodeBlocks blocks;
  XnnpackGrids grids;
  const float *scales, *terms, *bias;  // bias may be null
  std::int64_t count;                  // number of blocks
  float* y;
  FQ_HD void operator()(std::int64_t item) const {
    const auto p = blocks.place(item);
    const std::int64_t parts = blocks.columns / ggml_block, in_block = quotient(parts, count);
    float chains[rows_a_thread];
    for (int r = 0; r < rows_a_thread; ++r)
      if (r < p.count) chains[r] = fq::detail::xnnpack_first(terms[p.output], grids.row_grid(p.row + r).zero);
    // Sums within a block are exact integers. The multiply-adds over blocks have the engine's order.
    for (std::int64_t b = 0; b < count; ++b) {
      const float scale = scales[p.output * count + b];
      std::int32_t sums[rows_a_thread] = {};
      for (std::int64_t part = b * in_block; part < (b + 1) * in_block; ++part) add_part(p, part, sums);
      for (int r = 0; r < rows_a_thread; ++r)
        if (r < p.count) chains[r] = scalar::fma_(static_cast<float>(sums[r]), scale, chains[r]);
    }
    const float added = bias == nullptr ? 0.0f : bias[p.output];
    for (int r = 0; r < rows_a_thread; ++r)
      if (r < p.count)
        y[(p.row + r) * blocks.outputs + p.output] = grids.row_grid(p.row + r).block_sum(chains[r], added);
  }
  /// Adds one part of the codes of x, with the engine's offset.
  FQ_HD void add_part(const CodeBlocks::Place& p, std::int64_t part,
                      std::int32_t (&sums)[rows_a_thread]) const {
    std::uint32_t w[block_words], x[block_words];
    load_words(blocks.w + p.output * blocks.columns + part * ggml_block, w);
    std::int32_t offset = 0;
    // The engine multiplies x + 128: 128 * the sum of the weights is added to each block's sum.
    for (const std::uint32_t word : w) offset = add_products(0x01010101u, word, offset);
    for (int r = 0; r < rows_a_thread; ++r) {
      if (r >= p.count) continue;
      load_words(blocks.x + (p.row + r) * blocks.columns + part * ggml_block, x);
      sums[r] += fq::detail::xnnpack_offset * offset;
      for (int i = 0; i < block_words; ++i) sums[r] = add_products(x[i], w[i], sums[r]);
    }
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
  out.codes = codes;
  out.scales = scales;
  out.zero_terms = Tensor::empty({outputs}, DType::f32, codes.device());
  if (outputs == 0) return;
  launch_each(codes.device(), outputs,
              ZeroTerms{device_data<std::int8_t>(codes), device_data<float>(scales), codes.dim(1),
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
  const CodeBlocks blocks(x, w.codes);
  launch_each(y.device(), blocks.items(),
              XnnpackBlocks{blocks, xnnpack_grids(grids, x.dim(1)), device_data<float>(w.scales),
                            device_data<float>(w.zero_terms), device_data<float>(bias),
                            w.scales.numel() / y.dim(1), mutable_device_data<float>(y)});
}

void xnnpack_channel_sums(const Tensor& sums, const Tensor& weights, const Tensor& grids, const Tensor& scale,
                          const Tensor& bias, Tensor& y) {
  launch_each(y.device(), y.numel(),
              ChannelSums{device_data<std::int32_t>(sums), device_data<std::int32_t>(weights),
                          xnnpack_grids(grids, y.dim(1)), device_data<float>(scale), device_data<float>(bias),
                          scale.numel() == 1 ? 0 : 1, mutable_device_data<float>(y)});
}

}  // namespace fq::cuda
