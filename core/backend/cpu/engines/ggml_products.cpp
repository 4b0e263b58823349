#include <algorithm>

#include "fakequant/core/backend/cpu/engines/chain_operands.h"
#include "fakequant/core/backend/cpu/engines/engine_products.h"
#include "fakequant/core/backend/cpu/engines/row_code_kernels.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/error.h"
#include "fakequant/core/numerics/detail/ggml_formulas.h"

namespace fq::cpu {
namespace {

using detail::ggml_block;
using detail::GgmlRounding;
using detail::GgmlStep;

constexpr std::int32_t kOffset = 128;  // makes codes of x unsigned bytes

/// Returns the effect of the offset on the sum of each block of 32, in strips.
ArenaVector<std::int32_t> offset_sums(const Tensor& w) {
  auto sums = code_sums(w, ggml_block);
  for (auto& sum : sums) sum *= kOffset;
  return pack_strips<1, std::int32_t>(sums.data(), w.dim(0), w.dim(1) / ggml_block);
}

/// Blocks per step of a thread.
constexpr std::int64_t kBlocks = 64;

/// Quantizes up to kBlocks blocks. `extreme_codes` may be null. Returns whether a number was NaN.
bool code_blocks(const float* x, std::int64_t blocks, const float* extreme_codes, GgmlRounding rounding,
                 std::int8_t* codes, float16* steps) {
  // 64 blocks of 32 numbers stay in the first-level cache from the search for the extremes to the codes.
  float extremes[kBlocks], factors[kBlocks];
  const bool of_files = rounding != GgmlRounding::activation;
  const bool nan = (of_files ? block_extremes : block_ranges)(x, blocks, extremes);
  // q8_0 rounds half away from zero, for which there is no vector kernel. Files are written once.
  bool by_vectors = !nan && rounding != GgmlRounding::q8_0;
  for (std::int64_t b = 0; b < blocks; ++b) {
    const float code = extreme_codes != nullptr ? extreme_codes[b] : detail::ggml_extreme_code(rounding);
    const GgmlStep s = detail::ggml_step(extremes[b], code, rounding);
    steps[b] = float16(s.step);
    factors[b] = s.factor;
    by_vectors = by_vectors && have_vector_codes(extremes[b], s.factor);
  }
  if (by_vectors)
    (of_files ? halves_up_codes : block_codes)(x, blocks, factors, codes);
  else
    for (std::int64_t i = 0; i < blocks * ggml_block; ++i)
      codes[i] = detail::ggml_code(x[i], factors[i / ggml_block], rounding);
  return nan;
}

// llama.cpp's repacked buffers: one exact integer sum per block of 32, and one chain of multiply-adds per
// output.
void ggml_repacked(const Tensor& x, const Tensor& x_steps, const PackedWeight& w, const float* bias,
                   PaddedOutputs& y) {
  const std::int64_t tiled = tiled_rows(x.dim(0));
  const OffsetCodes<std::uint8_t> bytes(x, kOffset, tiled);
  const BlockChains chains{.x = bytes.data(),
                           .x_scale = x_steps.data<float>(),
                           .w = w.bytes.data(),
                           .w_scale = w.scales.data(),
                           .subtract = w.offsets.data(),
                           .y = y.data(),
                           .columns = w.columns,
                           .pitch = y.width(),
                           .block = ggml_block,
                           .last_bias = bias,
                           .tiled_rows = tiled,
                           .codes = x.data<std::int8_t>()};
  run_output_parts(x.dim(0), w.columns, y.width(), outputs_at_once(tiled),
                   [&](std::int64_t begin, std::int64_t end, std::int64_t n, std::int64_t last) {
                     chain_blocks(chains, begin, end, n, last);
                   });
}

/// Returns the strip that begins with output n.
LaneChains chain_strip(LaneChains all, std::int64_t n) {
  all.w += n * all.columns;
  all.w_scale += n * (all.columns / lane_block);
  all.y += n;
  if (all.bias != nullptr) all.bias += n;
  return all;
}

// llama.cpp's plain buffers: eight chains per output, one for each lane of a 256-bit vector.
void ggml_lanes(const Tensor& x, const Tensor& x_steps, const PackedWeight& w, const float* bias,
                PaddedOutputs& y) {
  const OffsetCodes<std::int16_t> words(x, 0);
  const LaneChains chains{.x = words.data(),
                          .x_scale = x_steps.data<float>(),
                          .w = w.words.data(),
                          .w_scale = w.scales.data(),
                          .bias = bias,
                          .y = y.data(),
                          .columns = w.columns,
                          .pitch = y.width()};
  run_output_parts(x.dim(0), w.columns, y.width(), outputs_at_once(),
                   [&](std::int64_t begin, std::int64_t end, std::int64_t n, std::int64_t last) {
                     for (; n < last; n += chain_width) chain_lanes(chain_strip(chains, n), begin, end);
                   });
}

}  // namespace

bool ggml_codes(const Tensor& x, const Tensor& extreme_codes, GgmlRounding rounding, Tensor& codes,
                Tensor& steps) {
  const auto* in = x.data<float>();
  const float* given = extreme_codes.defined() ? extreme_codes.data<float>() : nullptr;
  auto* out = codes.mutable_data<std::int8_t>();
  auto* scales = steps.mutable_data<float16>();
  const std::int64_t blocks = x.numel() / ggml_block;
  bool nan = false;
#pragma omp parallel for schedule(static) reduction(|| : nan) if (x.numel() > parallel_elements)
  for (std::int64_t b = 0; b < blocks; b += kBlocks)
    nan = code_blocks(in + b * ggml_block, std::min(kBlocks, blocks - b),
                      given != nullptr ? given + b : given, rounding, out + b * ggml_block, scales + b) ||
          nan;
  return nan;
}

PackedWeight ggml_weight(const Tensor& codes, const Tensor& steps, bool repack) {
  const std::int64_t outputs = codes.dim(0), columns = codes.dim(1);
  PackedWeight out{outputs, columns, ggml_block, {}, {}, scales_in_strips(codes, steps), {}, {}};
  const auto* q = codes.data<std::int8_t>();
  if (repack) {
    out.bytes = pack_strips<4, std::int8_t>(q, outputs, columns);
    out.offsets = offset_sums(codes);
  } else {
    out.words = pack_strips<2, std::int16_t>(q, outputs, columns);
  }
  return out;
}

void ggml_product(const Tensor& x, const Tensor& x_steps, const PackedWeight& w, const Tensor& bias,
                  Tensor& y) {
  if (y.numel() == 0) return;
  PaddedOutputs outputs(y);
  std::vector<float> added;
  if (bias.defined()) added = padded_numbers(outputs.width(), bias.data<float>(), w.outputs);
  (w.bytes.empty() ? ggml_lanes : ggml_repacked)(x, x_steps, w, bias.defined() ? added.data() : nullptr,
                                                 outputs);
  outputs.finish();
}

void ggml_operand(const Tensor& codes, const Tensor& scales, bool in_lanes, detail::EngineOperand& out) {
  out.packed = std::make_shared<const PackedWeight>(ggml_weight(codes, scales, !in_lanes));
}

void ggml_blocks(const Tensor& x, const Tensor& extreme_codes, detail::GgmlRounding rounding,
                 const std::string& nan_text, Tensor& codes, Tensor& steps) {
  // The engine does not check for NaN: an empty text selects its behaviour.
  if (ggml_codes(x, extreme_codes, rounding, codes, steps) && !nan_text.empty()) throw NumericError(nan_text);
}

void ggml_product(const Tensor& x, const Tensor& steps, const detail::EngineOperand& w, const Tensor& bias,
                  Tensor& y) {
  ggml_product(x, steps, *w.packed, bias, y);
}

}  // namespace fq::cpu
