#include "fakequant/core/backend/cpu/engines/engine_products.h"

#include <algorithm>
#include <vector>

#include "fakequant/core/backend/cpu/elementwise/map.h"
#include "fakequant/core/backend/cpu/engines/chain_kernels.h"
#include "fakequant/core/numerics/detail/ggml_formulas.h"
#include "fakequant/core/numerics/detail/xnnpack_formulas.h"

namespace fq::cpu {
namespace {

using detail::ggml_block;
using detail::GgmlStep;
using detail::XnnpackRow;

constexpr std::int64_t kRows = 64;  // of x, that share what is read of a weight

GgmlStep step_of(float extreme, GgmlRounding rounding) {
  switch (rounding) {
    case GgmlRounding::q4_0:
      return GgmlStep::q4_0(extreme);
    case GgmlRounding::q8_0:
      return GgmlStep::q8_0(std::fabs(extreme));
    case GgmlRounding::activation:
      break;
  }
  return GgmlStep::q8_0_activation(std::fabs(extreme));
}

std::int8_t code_of(float x, float factor, GgmlRounding rounding) {
  switch (rounding) {
    case GgmlRounding::q4_0:
      return detail::ggml_q4_0_code(x, factor);
    case GgmlRounding::q8_0:
      return detail::ggml_q8_0_code(x, factor);
    case GgmlRounding::activation:
      break;
  }
  return detail::ggml_activation_code(x, factor);
}

/// A weight in the form of the chains.
struct TurnedWeight {
  std::int64_t width;
  std::vector<std::int16_t> codes;
  std::vector<float> scale;

  TurnedWeight(const Tensor& w, const Tensor& scales)
      : width((w.dim(0) + chain_width - 1) / chain_width * chain_width),
        codes(turned<std::int16_t>(w.data<std::int8_t>(), w.dim(0), w.dim(1))),
        scale(turned<float>(scales.data<float>(), w.dim(0),
                            scales.numel() / std::max<std::int64_t>(w.dim(0), 1))) {}

 private:
  template <class To, class From>
  [[nodiscard]] std::vector<To> turned(const From* from, std::int64_t rows, std::int64_t columns) const {
    std::vector<To> out(static_cast<std::size_t>(width * columns));
#pragma omp parallel for schedule(static) if (rows * columns > parallel_elements)
    for (std::int64_t k = 0; k < columns; ++k)
      for (std::int64_t n = 0; n < rows; ++n)
        out[static_cast<std::size_t>(k * width + n)] = from[n * columns + k];
    return out;
  }
};

std::vector<std::int16_t> wide_codes(const Tensor& x, std::int32_t offset) {
  std::vector<std::int16_t> out(static_cast<std::size_t>(x.numel()));
  const auto* in = x.data<std::int8_t>();
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::int16_t>(in[i] + offset);
  return out;
}

/// Every part of the result, by rows and outputs.
template <class Run>
void for_parts(std::int64_t rows, std::int64_t columns, std::int64_t width, const Run& run) {
#pragma omp parallel for collapse(2) schedule(static) if (rows * columns * width > parallel_elements)
  for (std::int64_t row = 0; row < rows; row += kRows)
    for (std::int64_t n = 0; n < width; n += chain_width) run(row, std::min(rows, row + kRows), n);
}

/// y [rows, outputs] = f(the padded one's row and output).
template <class F>
void unpad(std::int64_t width, Tensor& y, const F& f) {
  const std::int64_t rows = y.dim(0), outputs = y.dim(1);
  auto* out = y.mutable_data<float>();
#pragma omp parallel for schedule(static) if (y.numel() > parallel_elements)
  for (std::int64_t m = 0; m < rows; ++m)
    for (std::int64_t n = 0; n < outputs; ++n) out[m * outputs + n] = f(m, n, m * width + n);
}

/// For each output the term of a zero point, by chunks of columns.
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

XnnpackRow row_grid(const float* grids, std::int64_t row) { return {0, grids[2 * row], grids[2 * row + 1]}; }

}  // namespace

void ggml_codes(const Tensor& x, GgmlRounding rounding, Tensor& codes, Tensor& steps) {
  const auto* in = x.data<float>();
  auto* out = codes.mutable_data<std::int8_t>();
  auto* scales = steps.mutable_data<float16>();
#pragma omp parallel for schedule(static) if (x.numel() > parallel_elements)
  for (std::int64_t b = 0; b < x.numel() / ggml_block; ++b) {
    const float* block = in + b * ggml_block;
    const GgmlStep s = step_of(detail::ggml_extreme(block), rounding);
    scales[b] = float16(s.step);
    for (std::int64_t i = 0; i < ggml_block; ++i)
      out[b * ggml_block + i] = code_of(block[i], s.factor, rounding);
  }
}

void ggml_product(const Tensor& x, const Tensor& x_steps, const Tensor& w, const Tensor& w_steps, bool repack,
                  Tensor& y) {
  if (y.numel() == 0) return;
  const std::int64_t rows = x.dim(0), columns = x.dim(1);
  const TurnedWeight turned(w, w_steps);
  const auto wide = wide_codes(x, 0);
  std::vector<float> sums(static_cast<std::size_t>(rows * turned.width), 0.0f);
  const BlockChains chains{
      wide.data(), x_steps.data<float>(), turned.codes.data(), turned.scale.data(), sums.data(),
      columns,     turned.width,          ggml_block};
  for_parts(rows, columns, turned.width, [&](std::int64_t begin, std::int64_t end, std::int64_t n) {
    repack ? chain_blocks(chains, begin, end, n) : chain_lanes(chains, begin, end, n);
  });
  unpad(turned.width, y,
        [&](std::int64_t, std::int64_t, std::int64_t at) { return sums[static_cast<std::size_t>(at)]; });
}

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

void xnnpack_block_product(const Tensor& x, const Tensor& grids, const Tensor& w, const Tensor& scale,
                           const Tensor& bias, Tensor& y) {
  if (y.numel() == 0) return;
  const std::int64_t rows = x.dim(0), columns = x.dim(1), outputs = w.dim(0);
  const TurnedWeight turned(w, scale);
  const auto wide = wide_codes(x, detail::xnnpack_offset);
  const auto terms = zero_terms(w, scale);
  const auto* numbers = grids.data<float>();
  const float* added = bias.defined() ? bias.data<float>() : nullptr;
  std::vector<float> sums(static_cast<std::size_t>(rows * turned.width), 0.0f);
  for (std::int64_t m = 0; m < rows; ++m)
    for (std::int64_t n = 0; n < outputs; ++n)
      sums[static_cast<std::size_t>(m * turned.width + n)] =
          detail::xnnpack_first(terms[static_cast<std::size_t>(n)], numbers[2 * m + 1]);
  const BlockChains chains{wide.data(), nullptr, turned.codes.data(), turned.scale.data(),
                           sums.data(), columns, turned.width,        columns / (scale.numel() / outputs)};
  for_parts(rows, columns, turned.width, [&](std::int64_t begin, std::int64_t end, std::int64_t n) {
    chain_blocks(chains, begin, end, n);
  });
  unpad(turned.width, y, [&](std::int64_t m, std::int64_t n, std::int64_t at) {
    return row_grid(numbers, m)
        .block_sum(sums[static_cast<std::size_t>(at)], added != nullptr ? added[n] : 0.0f);
  });
}

void xnnpack_channel_sums(const Tensor& sums, const Tensor& weights, const Tensor& grids, const Tensor& scale,
                          const Tensor& bias, Tensor& y) {
  const auto* in = sums.data<std::int32_t>();
  const auto* of_weights = weights.data<std::int32_t>();
  const auto *numbers = grids.data<float>(), *scales = scale.data<float>();
  const float* added = bias.defined() ? bias.data<float>() : nullptr;
  const std::int64_t step = scale.numel() == 1 ? 0 : 1;
  unpad(y.dim(1), y, [&](std::int64_t m, std::int64_t n, std::int64_t at) {
    const XnnpackRow grid = row_grid(numbers, m);
    const std::int32_t centred = in[at] - static_cast<std::int32_t>(grid.zero) * of_weights[n];
    return grid.channel_sum(centred, scales[n * step], added != nullptr ? added[n] : 0.0f);
  });
}

std::vector<std::int32_t> code_sums(const Tensor& codes, std::int64_t count) {
  std::vector<std::int32_t> out(static_cast<std::size_t>(codes.numel() / count), 0);
  const auto* q = codes.data<std::int8_t>();
  for (std::int64_t i = 0; i < codes.numel(); ++i) out[static_cast<std::size_t>(i / count)] += q[i];
  return out;
}

}  // namespace fq::cpu
