#include "fakequant/core/backend/cpu/engines/chain_operands.h"
#include "fakequant/core/backend/cpu/engines/engine_products.h"
#include "fakequant/core/numerics/detail/ggml_formulas.h"

namespace fq::cpu {
namespace {

using detail::ggml_block;
using detail::GgmlRounding;
using detail::GgmlStep;

constexpr std::int32_t kOffset = 128;  // makes codes of x unsigned bytes

/// What the offset adds to the sum of a block of 32, in strips.
std::vector<std::int32_t> offset_sums(const Tensor& w) {
  auto sums = code_sums(w, ggml_block);
  for (auto& sum : sums) sum *= kOffset;
  return in_strips<1, std::int32_t>(sums.data(), w.dim(0), w.dim(1) / ggml_block);
}

void ggml_blocks(const Tensor& x, const Tensor& x_steps, const PackedWeight& w, PaddedOutputs& y) {
  const OffsetCodes<std::uint8_t> bytes(x, kOffset);
  const BlockChains chains{.x = bytes.data(),
                           .x_scale = x_steps.data<float>(),
                           .w = w.bytes.data(),
                           .w_scale = w.scales.data(),
                           .subtract = w.offsets.data(),
                           .y = y.data(),
                           .columns = w.columns,
                           .pitch = y.width(),
                           .block = ggml_block};
  for_parts(x.dim(0), w.columns, y.width(),
            [&](std::int64_t begin, std::int64_t end, std::int64_t n, std::int64_t last) {
              chain_blocks(chains, begin, end, n, last);
            });
}

/// The strip from output n.
LaneChains strip_of(LaneChains all, std::int64_t n) {
  all.w += n * all.columns;
  all.w_scale += n * (all.columns / lane_block);
  all.y += n;
  return all;
}

void ggml_lanes(const Tensor& x, const Tensor& x_steps, const PackedWeight& w, PaddedOutputs& y) {
  const OffsetCodes<std::int16_t> words(x, 0);
  const LaneChains chains{
      words.data(), x_steps.data<float>(), w.words.data(), w.scales.data(), y.data(), w.columns, y.width()};
  for_parts(x.dim(0), w.columns, y.width(),
            [&](std::int64_t begin, std::int64_t end, std::int64_t n, std::int64_t last) {
              for (; n < last; n += chain_width) chain_lanes(strip_of(chains, n), begin, end);
            });
}

}  // namespace

void ggml_codes(const Tensor& x, GgmlRounding rounding, Tensor& codes, Tensor& steps) {
  const auto* in = x.data<float>();
  auto* out = codes.mutable_data<std::int8_t>();
  auto* scales = steps.mutable_data<float16>();
#pragma omp parallel for schedule(static) if (x.numel() > parallel_elements)
  for (std::int64_t b = 0; b < x.numel() / ggml_block; ++b) {
    const float* block = in + b * ggml_block;
    const GgmlStep s = detail::ggml_step(detail::ggml_extreme(block), rounding);
    scales[b] = float16(s.step);
    for (std::int64_t i = 0; i < ggml_block; ++i)
      out[b * ggml_block + i] = detail::ggml_code(block[i], s.factor, rounding);
  }
}

PackedWeight ggml_weight(const Tensor& codes, const Tensor& steps, bool repack) {
  const std::int64_t outputs = codes.dim(0), columns = codes.dim(1);
  PackedWeight out{outputs, columns, ggml_block, {}, {}, scales_in_strips(codes, steps), {}, {}};
  const auto* q = codes.data<std::int8_t>();
  if (repack) {
    out.bytes = in_strips<4, std::int8_t>(q, outputs, columns);
    out.offsets = offset_sums(codes);
  } else {
    out.words = in_strips<2, std::int16_t>(q, outputs, columns);
  }
  return out;
}

void ggml_product(const Tensor& x, const Tensor& x_steps, const PackedWeight& w, Tensor& y) {
  if (y.numel() == 0) return;
  PaddedOutputs outputs(y);
  (w.bytes.empty() ? ggml_lanes : ggml_blocks)(x, x_steps, w, outputs);
  outputs.finish();
}

}  // namespace fq::cpu
