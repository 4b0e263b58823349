#include "fakequant/layers/quantizer/detail/engine_codes.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "fakequant/calib/detail/ranges.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/numerics/detail/ggml_formulas.h"
#include "fakequant/core/ops/detail/engine_rows.h"
#include "fakequant/core/quantized.h"
#include "fakequant/layers/quantizer/detail/block_ranges.h"
#include "fakequant/layers/quantizer/quant_params.h"

namespace fq::detail {
namespace {

constexpr float kLeastMean = 0x1p-24f;  // QuantSpec::from_amax

/// Maps the elements of a row-major tensor to channels.
struct Channels {
  std::int64_t count = 1, inner;

  Channels(const Shape& shape, int axis) : inner(numel(shape)) {
    if (axis < 0) return;
    count = shape[static_cast<std::size_t>(axis)];
    inner = numel(Shape(shape.begin() + axis + 1, shape.end()));
  }
  [[nodiscard]] std::size_t of(std::size_t i) const {
    return i / static_cast<std::size_t>(inner) % static_cast<std::size_t>(count);
  }
};

Tensor means(const std::vector<float>& values, const Channels& channels) {
  std::vector<double> sums(static_cast<std::size_t>(channels.count));
  for (std::size_t i = 0; i < values.size(); ++i) sums[channels.of(i)] += std::abs(values[i]);
  const double elements = static_cast<double>(values.size()) / static_cast<double>(channels.count);
  std::vector<float> out;
  for (const double sum : sums) out.push_back(static_cast<float>(sum / elements));
  return listed(Tensor::from<float>(out, {channels.count}));
}

/// Codes of x by its signs: -1 below 0, +1 elsewhere, with the mean |x| of each channel of the descriptor's
/// axis as scale, or of all of x without an axis; every gradient passes. Means are sums in double on the
/// host, in the order of the elements. A channel whose mean is at most 2^-24 has codes of 0. Throws
/// ArgumentError for an axis that x does not have and NumericError for a NaN or an infinity, both naming the
/// quantizer.
QuantizedTensor binary_codes(const Tensor& x, const QuantParams& params) {
  const QuantDescriptor& d = params.descriptor;
  const Granularity granularity = d.granularity(x.rank());
  const auto spec_of = [&](const Granularity& by, const Tensor& amax) {
    auto out = QuantSpec::from_amax(d.format(), by, amax, params.name, params.pow2, params.zero_point);
    out.pass_through_bwd = true;
    return out;
  };
  if (x.device().is_meta())
    return quantize(x, spec_of(Granularity::per_tensor(), Tensor::scalar(1.0)), false);
  const std::vector<float> values = x.to(Device::cpu()).to(Layout::row_major).to_vector<float>();
  const Channels channels(x.shape(), granularity.single_axis(x.rank()));
  const Tensor mean = means(values, channels);
  check_finite(mean, "quantizer", params.name);
  const std::vector<float> range = mean.to_vector<float>();
  std::vector<std::int8_t> codes(values.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    codes[i] = range[channels.of(i)] <= kLeastMean ? 0 : values[i] < 0 ? -1 : 1;
  const Tensor row_major = Tensor::from<std::int8_t>(codes, x.shape());
  return {row_major.to(x.layout()).to(x.device()),
          spec_of(channels.count == 1 ? Granularity::per_tensor() : granularity, mean).to(x.device()),
          {}};
}

constexpr std::int64_t kBlock = 32;
constexpr std::pair<EngineGrid, std::string_view> kNames[] = {{EngineGrid::none, "none"},
                                                              {EngineGrid::q4_0, "q4_0"},
                                                              {EngineGrid::q8_0, "q8_0"},
                                                              {EngineGrid::bf16_scales, "bf16_scales"}};

}  // namespace

bool has_own_codes(EngineGrid grid) noexcept { return grid == EngineGrid::q4_0 || grid == EngineGrid::q8_0; }

QuantizedTensor engine_codes(const Tensor& x, const QuantParams& params,
                             const Tensor& extreme_codes) {
  FQ_CHECK(x.rank() == 2 && x.dim(1) % kBlock == 0, "quantizer",
           "{} has blocks of {} along rows, its input is {}: give [N, K], K a multiple of {}",
           quantizer_label(params.name), kBlock, to_string(x.shape()), kBlock);
  const Tensor values = x.to(DType::f32).to(Layout::row_major);
  if (!x.device().is_meta()) (void)ranges_of(values, BlockView(values.shape(), Axes{}), params.name);
  FQ_CHECK(!extreme_codes.defined() || extreme_codes.numel() * kBlock == x.numel(), "quantizer",
           "{} was calibrated for {} blocks, its input {} has {}: calibrate again",
           quantizer_label(params.name), extreme_codes.numel(), to_string(x.shape()), x.numel() / kBlock);
  const GgmlBlocks blocks =
      ggml_weight_blocks(values, extreme_codes,
                         params.engine_grid == EngineGrid::q4_0 ? GgmlRounding::q4_0 : GgmlRounding::q8_0);
  QuantSpec spec;
  spec.format = params.descriptor.format();
  spec.granularity = Granularity::blocks({{-1, kBlock}});
  spec.scale = spec.amax = blocks.steps.to(DType::f32);
  spec.name = params.name;
  spec.pass_through_bwd = true;
  return {blocks.codes, std::move(spec), {}};
}

bool has_own_codes(const QuantParams& params) noexcept {
  return params.binary || has_own_codes(params.engine_grid);
}

QuantizedTensor own_codes(const Tensor& x, const QuantParams& params, const Tensor& extreme_codes) {
  return params.binary ? binary_codes(x, params) : engine_codes(x, params, extreme_codes);
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
