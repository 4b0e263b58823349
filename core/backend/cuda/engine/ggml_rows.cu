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

/// Order of repacked buffers: y = fma(float(S_b), x_step * w_step, y) over the blocks
/// (cpu/engines/chain_kernels.h), S_b the sum of a block. Then the bias.
struct GgmlChain {
  static constexpr bool shifted = false, scaled = true, single = true;
  static constexpr int pairs = 4;
  const float* bias;  // may be null
  FQ_HD float first_of_row(int) const { return 0.0f; }
  FQ_HD float first_of_output(int) const { return 0.0f; }
  FQ_HD float last_of_row(int) const { return 0.0f; }
  FQ_HD float last_of_output(int output) const { return bias != nullptr ? bias[output] : 0.0f; }
  FQ_HD float first(float, float) const { return 0.0f; }
  FQ_HD float next(float chain, std::int32_t sum, float x_step, float w_step) const {
    return scalar::fma_(static_cast<float>(sum), scalar::mul_(x_step, w_step), chain);
  }
  FQ_HD float last(float chain, float, float added) const {
    return bias != nullptr ? scalar::add_(chain, added) : chain;
  }
};

/// Order of plain buffers: each of eight lanes of four codes has a chain of its own. A tensor core sums whole
/// blocks, so threads multiply the lanes, each for a few rows and outputs.
struct GgmlLanes : RoundPhases {
  static constexpr int lanes = part_codes / 4, down = 4, across = 2, side = 16;
  static_assert(side * side == block_threads);
  using Tiles = BlockTiles<down * side, across * side, true>;
  using Shared = Tiles::Shared;
  struct Kept {
    float chains[down][across][lanes];
  };
  Tiles tiles;
  GgmlChain chain;
  float* y;

  [[nodiscard]] FQ_HD int steps(const Shared&) const { return tiles.rounds; }
  FQ_HD void begin(const Thread& t, Shared& shared, Kept& kept) const {
    (void)tiles.begin(t, shared);
    for (auto& row : kept.chains)
      for (auto& output : row)
        for (float& lane : output) lane = 0.0f;
    wait_for_copies();
  }
  template <int phase>
  FQ_HD void step(const Thread& t, Shared& shared, Kept& kept, int round) const {
    tiles.run_round(t, round, shared, [&](const Tiles::Stage& stage, int p, int) {
      add_chunk<0>(t.thread, stage, p, kept);
      add_chunk<1>(t.thread, stage, p, kept);
    });
  }
  // The order of ggml's reduction of eight lanes, as in the host's lane_kernels.cpp.
  FQ_HD static float lane_sum(const float (&chain)[lanes]) {
    const float a0 = chain[4] + chain[0], a1 = chain[5] + chain[1], a2 = chain[6] + chain[2],
                a3 = chain[7] + chain[3];
    return (a0 + a2) + (a1 + a3);
  }
  template <int phase>
  FQ_HD void end(const Thread& t, const Shared& shared, const Kept& kept) const {
    const auto tile = shared.place;
    for (int i = 0; i < down; ++i)
      for (int j = 0; j < across; ++j) {
        const int row = tile.row + t.thread / side + i * side,
                  output = tile.output + t.thread % side + j * side;
        if (row < tiles.x.rows && output < tiles.w.rows)
          y[std::int64_t{row} * tiles.w.rows + output] =
              chain.last(lane_sum(kept.chains[i][j]), 0.0f, chain.last_of_output(output));
      }
  }

 private:
  /// Adds four lanes of a part: 16 codes.
  template <int half>
  FQ_HD void add_chunk(int thread, const Tiles::Stage& stage, int p, Kept& kept) const {
    constexpr int words = lanes / 2;
    using Words = loops::Pack<std::uint32_t>;
    const auto words_of = [&](const auto& rows, int first, int row) {
      return loops::load_pack(reinterpret_cast<const Words*>(rows.chunk(first, row, 2 * p + half)));
    };
    Words w[across];
    for (int j = 0; j < across; ++j) w[j] = words_of(stage.w, j * side, thread % side);
    for (int i = 0; i < down; ++i) {
      const int row = thread / side + i * side;
      const Words x = words_of(stage.x, i * side, thread / side);
      for (int j = 0; j < across; ++j) {
        const float x_step = stage.x.scales[p][row], w_step = stage.w.scales[p][thread % side + j * side];
        for (int l = 0; l < words; ++l) {
          float& lane = kept.chains[i][j][half * words + l];
          lane = chain.next(lane, add_products(x.v[l], w[j].v[l], 0), x_step, w_step);
        }
      }
    }
  }
};

}  // namespace

void ggml_operand(const Tensor& codes, const Tensor& scales, bool in_lanes, EngineOperand& out) {
  out.codes = aligned_codes(codes);
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
  const Tensor codes = aligned_codes(x);
  const BlockRows rows(codes, steps), outputs(w.codes, w.scales);
  const GgmlChain chain{device_data<float>(bias)};
  if (w.in_lanes)
    launch_product<GgmlLanes>(y, rows, outputs, chain);
  else
    launch_product<TensorCoreProduct<GgmlChain>>(y, rows, outputs, chain);
}

}  // namespace fq::cuda
