#include "fakequant/layers/quantizer/detail/engine_codes.h"

#include <algorithm>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/numerics/detail/ggml_formulas.h"
#include "fakequant/core/ops/detail/engine_rows.h"
#include "fakequant/layers/quantizer/detail/binary_codes.h"
#include "fakequant/layers/quantizer/detail/block_ranges.h"

namespace fq::detail {
namespace {

constexpr std::int64_t kBlock = 32;
constexpr std::pair<EngineGrid, std::string_view> kNames[] = {{EngineGrid::none, "none"},
                                                              {EngineGrid::q4_0, "q4_0"},
                                                              {EngineGrid::q8_0, "q8_0"},
                                                              {EngineGrid::bf16_scales, "bf16_scales"}};

}  // namespace

bool has_own_codes(EngineGrid grid) noexcept { return grid == EngineGrid::q4_0 || grid == EngineGrid::q8_0; }

QuantizedTensor engine_codes(const Tensor& x, const QuantizerSettings& settings,
                             const Tensor& extreme_codes) {
  FQ_CHECK(x.rank() == 2 && x.dim(1) % kBlock == 0, "quantizer",
           "{} has blocks of {} along rows, its input is {}: give [N, K], K a multiple of {}",
           quantizer_label(settings.name), kBlock, to_string(x.shape()), kBlock);
  const Tensor values = x.to(DType::f32).to(Layout::row_major);
  if (!x.device().is_meta()) (void)ranges_of(values, BlockView(values.shape(), Axes{}), settings.name);
  FQ_CHECK(!extreme_codes.defined() || extreme_codes.numel() * kBlock == x.numel(), "quantizer",
           "{} was calibrated for {} blocks, its input {} has {}: calibrate again",
           quantizer_label(settings.name), extreme_codes.numel(), to_string(x.shape()), x.numel() / kBlock);
  const GgmlBlocks blocks =
      ggml_weight_blocks(values, extreme_codes,
                         settings.engine_grid == EngineGrid::q4_0 ? GgmlRounding::q4_0 : GgmlRounding::q8_0);
  QuantSpec spec;
  spec.format = settings.descriptor.format();
  spec.granularity = Granularity::blocks({{-1, kBlock}});
  spec.scale = spec.amax = blocks.steps.to(DType::f32);
  spec.name = settings.name;
  spec.pass_through_bwd = true;
  return {blocks.codes, std::move(spec), {}};
}

bool has_own_codes(const QuantizerSettings& settings) noexcept {
  return settings.binary || has_own_codes(settings.engine_grid);
}

QuantizedTensor own_codes(const Tensor& x, const QuantizerSettings& settings, const Tensor& extreme_codes) {
  return settings.binary ? binary_codes(x, settings) : engine_codes(x, settings, extreme_codes);
}

std::string_view engine_grid_name(EngineGrid grid) noexcept {
  return std::ranges::find(kNames, grid, [](const auto& entry) { return entry.first; })->second;
}

EngineGrid engine_grid_from_name(std::string_view name) {
  const auto* found = std::ranges::find(kNames, name, [](const auto& entry) { return entry.second; });
  FQ_CHECK(found != std::end(kNames), "quantizer", "the grid '{}' of an engine is unknown", name);
  return found->first;
}

}  // namespace fq::detail
