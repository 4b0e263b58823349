#include "fakequant/core/backend/cuda/engine/block_products.cuh"
#include "fakequant/core/backend/cuda/loops/atomics.cuh"
#include "fakequant/core/backend/kernel_arguments.h"
#include "fakequant/core/backend/kernel_columns.h"

namespace fq::cuda {
namespace {

using fq::detail::EngineOperand, fq::detail::ggml_block, fq::detail::GgmlRounding;

// One thread per block of 32 numbers: the extreme is the first of equal magnitudes, so its search is
// sequential.
struct GgmlCodes {
  const float *x, *extreme_codes;  // extreme_codes may be null: llama.cpp's rule
  std::int8_t* codes;
  float16* steps;
  GgmlRounding rounding;
  bool guard;
  Alarm alarm;
  FQ_HD void operator()(std::int64_t block) const {
    float v[ggml_block];
    std::int8_t code[ggml_block];
    load_group(x + block * ggml_block, static_cast<int>(ggml_block), v);
    bool nan = false;
    for (const float each : v) nan = nan || each != each;
    if (nan && guard) raise(alarm);
    const float given =
        extreme_codes != nullptr ? extreme_codes[block] : fq::detail::ggml_extreme_code(rounding);
    const auto step = fq::detail::ggml_step(fq::detail::ggml_extreme(v), given, rounding);
    for (int i = 0; i < ggml_block; ++i) code[i] = fq::detail::ggml_code(v[i], step.factor, rounding);
    store_group(codes + block * ggml_block, static_cast<int>(ggml_block), code);
    steps[block] = float16(step.step);
  }
};

/// Computes y as the chain of fma(float(S_b), x_step * w_step, y) over the blocks
/// (cpu/engines/chain_kernels.h), where S_b is the sum of a whole block or of one of eight lanes.
template <bool in_lanes>
struct GgmlProduct {
  static constexpr int lanes = in_lanes ? block_words : 1;
  CodeBlocks blocks;
  const float *x_steps, *w_steps, *bias;  // bias may be null
  float* y;

  // The order of ggml's reduction of eight lanes, as in the host's lane_kernels.cpp.
  FQ_HD static float chain_sum(const float (&chain)[lanes]) {
    if constexpr (!in_lanes) return chain[0];
    const float a0 = chain[4 % lanes] + chain[0], a1 = chain[5 % lanes] + chain[1 % lanes];
    const float a2 = chain[6 % lanes] + chain[2 % lanes], a3 = chain[7 % lanes] + chain[3 % lanes];
    return (a0 + a2) + (a1 + a3);
  }
  FQ_HD void operator()(std::int64_t item) const {
    const auto p = blocks.place(item);
    const std::int64_t count = blocks.columns / ggml_block;
    float chains[rows_a_thread][lanes] = {};
    for (std::int64_t b = 0; b < count; ++b) {
      std::uint32_t w[block_words], x[block_words];
      load_words(blocks.w + p.output * blocks.columns + b * ggml_block, w);
      const float w_step = w_steps[p.output * count + b];
      for (int r = 0; r < rows_a_thread; ++r) {
        if (r >= p.count) continue;
        load_words(blocks.x + (p.row + r) * blocks.columns + b * ggml_block, x);
        const float step = x_steps[(p.row + r) * count + b] * w_step;
        std::int32_t sums[lanes] = {};
        // A word has four codes: the words of a block are its eight lanes.
        for (int i = 0; i < block_words; ++i) sums[i % lanes] = add_products(x[i], w[i], sums[i % lanes]);
        for (int l = 0; l < lanes; ++l)
          chains[r][l] = scalar::fma_(static_cast<float>(sums[l]), step, chains[r][l]);
      }
    }
    for (int r = 0; r < rows_a_thread; ++r) {
      if (r >= p.count) continue;
      const float sum = chain_sum(chains[r]);
      y[(p.row + r) * blocks.outputs + p.output] = bias != nullptr ? scalar::add_(sum, bias[p.output]) : sum;
    }
  }
};

}  // namespace

void ggml_operand(const Tensor& codes, const Tensor& scales, bool in_lanes, EngineOperand& out) {
  out.codes = codes;
  out.scales = scales;
  out.in_lanes = in_lanes;
}

void ggml_blocks(const Tensor& x, const Tensor& extreme_codes, GgmlRounding rounding,
                 const std::string& nan_text, Tensor& codes, Tensor& steps) {
  const bool guard = !nan_text.empty();
  launch_each(x.device(), x.numel() / ggml_block,
              GgmlCodes{device_data<float>(x), device_data<float>(extreme_codes),
                        mutable_device_data<std::int8_t>(codes), mutable_device_data<float16>(steps),
                        rounding, guard, guard ? alarm(x.device(), nan_text) : Alarm{}});
}

void ggml_product(const Tensor& x, const Tensor& steps, const EngineOperand& w, const Tensor& bias,
                  Tensor& y) {
  if (y.numel() == 0) return;
  const CodeBlocks blocks(x, w.codes);
  const auto *x_steps = device_data<float>(steps), *w_steps = device_data<float>(w.scales);
  const float* added = bias.defined() ? device_data<float>(bias) : nullptr;
  auto* out = mutable_device_data<float>(y);
  if (w.in_lanes)
    launch_each(y.device(), blocks.items(), GgmlProduct<true>{blocks, x_steps, w_steps, added, out});
  else
    launch_each(y.device(), blocks.items(), GgmlProduct<false>{blocks, x_steps, w_steps, added, out});
}

}  // namespace fq::cuda
