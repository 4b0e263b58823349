#include "fakequant/core/backend/cpu/engines/chain_operands.h"
#include "fakequant/core/backend/cpu/engines/engine_products.h"
#include "fakequant/core/backend/cpu/engines/row_code_kernels.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/error.h"
#include "fakequant/core/numerics/detail/xnnpack_formulas.h"

namespace fq::cpu {
namespace {

using detail::XnnpackRow;

// The sum of (q - zero) * w is the sum of q * w less zero * the sum of w. XNNPACK accumulates the second term
// in f32, in steps of 16 columns, when it packs a weight.
/// Returns for each output the term of a zero point, summed in chunks of columns.
std::vector<float> zero_terms(const Tensor& w, const Tensor& scale) {
  const auto sums = code_sums(w, detail::xnnpack_chunk);
  const std::int64_t outputs = w.dim(0), chunks = w.dim(1) / detail::xnnpack_chunk;
  const std::int64_t blocks = scale.numel() / outputs, in_block = chunks / blocks;
  const auto* scales = scale.data<float>();
  std::vector<float> out(static_cast<std::size_t>(outputs), 0.0f);
  for (std::int64_t n = 0; n < outputs; ++n)
    for (std::int64_t c = 0; c < chunks; ++c) {
      float& term = out[static_cast<std::size_t>(n)];
      term = detail::xnnpack_zero_term(term, sums[static_cast<std::size_t>(n * chunks + c)],
                                       scales[n * blocks + c / in_block]);
    }
  return out;
}

/// Start and end values of the chains of each row.
struct RowEnds {
  std::vector<float> first, last;

  RowEnds(const Tensor& grids, std::int64_t rows) {
    const auto* numbers = grids.data<float>();
    for (std::int64_t m = 0; m < rows; ++m) {
      // The chain begins at term * (zero + 128), because the codes of x have an offset of 128.
      first.push_back(detail::xnnpack_first(1.0f, numbers[2 * m + 1]));
      last.push_back(numbers[2 * m]);
    }
  }
};

XnnpackRow row_grid(const float* grids, std::int64_t row) { return {0, grids[2 * row], grids[2 * row + 1]}; }

/// Computes the codes of a row, and its step and zero point. Returns whether a number was NaN.
bool xnnpack_row(const float* x, std::int64_t columns, std::int8_t* codes, float* numbers) {
  float low = 0, high = 0;
  const bool nan = row_range(x, columns, &low, &high);
  const auto grid = detail::XnnpackRow::of(low, high);
  numbers[0] = grid.inverse;
  numbers[1] = grid.zero;
  std::int64_t k = 0;
  // A row of infinite range, or of a subnormal one, has an infinite factor or products of NaN. The scalar
  // formula then decides as XNNPACK does.
  if (!nan && have_vector_codes(high - low, grid.factor))
    k = row_codes(x, columns, grid.factor, grid.zero, codes);
  for (; k < columns; ++k) codes[k] = grid.code(x[k]);
  return nan;
}

bool xnnpack_rows(const Tensor& x, Tensor& codes, Tensor& grids) {
  const std::int64_t rows = x.dim(0), columns = x.dim(1);
  const auto* in = x.data<float>();
  auto* out = codes.mutable_data<std::int8_t>();
  auto* numbers = grids.mutable_data<float>();
  bool nan = false;
#pragma omp parallel for schedule(static) reduction(|| : nan) if (x.numel() > parallel_elements)
  for (std::int64_t m = 0; m < rows; ++m)
    nan = xnnpack_row(in + m * columns, columns, out + m * columns, numbers + 2 * m) || nan;
  return nan;
}

}  // namespace

// The codes by the scalar formula alone, without a check for NaN, for fq::xnnpack.
void xnnpack_codes(const Tensor& x, Tensor& codes, Tensor& grids) {
  const std::int64_t rows = x.dim(0), columns = x.dim(1);
  const auto* in = x.data<float>();
  auto* out = codes.mutable_data<std::int8_t>();
  auto* numbers = grids.mutable_data<float>();
#pragma omp parallel for schedule(static) if (x.numel() > parallel_elements)
  for (std::int64_t m = 0; m < rows; ++m) {
    float low = 0, high = 0;
    for (std::int64_t k = m * columns; k < (m + 1) * columns; ++k) {
      low = std::min(low, in[k]);
      high = std::max(high, in[k]);
    }
    const auto grid = XnnpackRow::of(low, high);
    for (std::int64_t k = m * columns; k < (m + 1) * columns; ++k) out[k] = grid.code(in[k]);
    numbers[2 * m] = grid.inverse;
    numbers[2 * m + 1] = grid.zero;
  }
}

void xnnpack_values(const Tensor& codes, const Tensor& grids, Tensor& values) {
  const std::int64_t columns = codes.dim(1);
  const auto* in = codes.data<std::int8_t>();
  const auto* numbers = grids.data<float>();
  auto* out = values.mutable_data<float>();
#pragma omp parallel for schedule(static) if (codes.numel() > parallel_elements)
  for (std::int64_t m = 0; m < codes.dim(0); ++m) {
    const XnnpackRow grid = row_grid(numbers, m);
    for (std::int64_t k = m * columns; k < (m + 1) * columns; ++k) out[k] = grid.value(in[k]);
  }
}

PackedWeight xnnpack_weight(const Tensor& codes, const Tensor& scale) {
  const std::int64_t outputs = codes.dim(0), columns = codes.dim(1);
  return {outputs,
          columns,
          columns / (scale.numel() / outputs),
          pack_strips<4, std::int8_t>(codes.data<std::int8_t>(), outputs, columns),
          {},
          scales_in_strips(codes, scale),
          {},
          zero_terms(codes, scale)};
}

void xnnpack_block_product(const Tensor& x, const Tensor& grids, const PackedWeight& w, const Tensor& bias,
                           Tensor& y) {
  if (y.numel() == 0) return;
  const std::int64_t rows = x.dim(0);
  const OffsetCodes<std::uint8_t> bytes(x, detail::xnnpack_offset);
  const RowEnds ends(grids, rows);
  PaddedOutputs outputs(y);
  const auto first = padded_numbers(outputs.width(), w.zero_terms.data(), w.outputs),
             last_bias =
                 padded_numbers(outputs.width(), bias.defined() ? bias.data<float>() : nullptr, w.outputs);
  // XNNPACK's qb4w kernel: the chain begins with the zero-point term, and the step of x and the bias come
  // last.
  const BlockChains chains{.x = bytes.data(),
                           .w = w.bytes.data(),
                           .w_scale = w.scales.data(),
                           .y = outputs.data(),
                           .columns = w.columns,
                           .pitch = outputs.width(),
                           .block = w.block,
                           .first = first.data(),
                           .first_factor = ends.first.data(),
                           .last_factor = ends.last.data(),
                           .last_bias = last_bias.data(),
                           .tiled_rows = tiled_rows(rows)};
  run_output_parts(rows, w.columns, outputs.width(), outputs_at_once(chains.tiled_rows),
                   [&](std::int64_t begin, std::int64_t end, std::int64_t n, std::int64_t last) {
                     chain_blocks(chains, begin, end, n, last);
                   });
  outputs.finish();
}

void xnnpack_channel_sums(const Tensor& sums, const Tensor& weights, const Tensor& grids, const Tensor& scale,
                          const Tensor& bias, Tensor& y) {
  const auto* in = sums.data<std::int32_t>();
  const auto* of_weights = weights.data<std::int32_t>();
  const auto *numbers = grids.data<float>(), *scales = scale.data<float>();
  const float* added = bias.defined() ? bias.data<float>() : nullptr;
  const std::int64_t rows = y.dim(0), outputs = y.dim(1), step = scale.numel() == 1 ? 0 : 1;
  auto* out = y.mutable_data<float>();
#pragma omp parallel for schedule(static) if (y.numel() > parallel_elements)
  for (std::int64_t m = 0; m < rows; ++m) {
    const XnnpackRow grid = row_grid(numbers, m);
    for (std::int64_t n = 0; n < outputs; ++n) {
      const std::int32_t centred = in[m * outputs + n] - static_cast<std::int32_t>(grid.zero) * of_weights[n];
      out[m * outputs + n] = grid.channel_sum(centred, scales[n * step], added != nullptr ? added[n] : 0.0f);
    }
  }
}

std::vector<std::int32_t> code_sums(const Tensor& codes, std::int64_t count) {
  std::vector<std::int32_t> out(static_cast<std::size_t>(codes.numel() / count), 0);
  const auto* q = codes.data<std::int8_t>();
  for (auto& sum : out) {
    for (std::int64_t i = 0; i < count; ++i) sum += q[i];
    q += count;
  }
  return out;
}

void xnnpack_operand(const Tensor& codes, const Tensor& scales, detail::EngineOperand& out) {
  out.packed = std::make_shared<const PackedWeight>(xnnpack_weight(codes, scales));
}

void xnnpack_rows(const Tensor& x, const std::string& nan_text, Tensor& codes, Tensor& grids) {
  if (xnnpack_rows(x, codes, grids)) throw NumericError(nan_text);
}

void xnnpack_block_product(const Tensor& x, const Tensor& grids, const detail::EngineOperand& w,
                           const Tensor& bias, Tensor& y) {
  xnnpack_block_product(x, grids, *w.packed, bias, y);
}

}  // namespace fq::cpu
