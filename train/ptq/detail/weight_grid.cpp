#include "fakequant/train/ptq/detail/weight_grid.h"

#include <cmath>

#include "fakequant/core/numerics/detail/formulas.h"
#include "fakequant/core/numerics/detail/grid_numbers.h"
#include "fakequant/layers/quantizer/sequential_quantizer.h"

namespace fq::ptq {
namespace {

constexpr const char* kRecomputed = "recomputes the ranges of its weights at each call";
constexpr float kLeastE4m3 = 0x1p-9f;          // smallest block scale, in units of the tensor's scale
constexpr float kLeastFloatRange = 0x1p-100f;  // blocks of zeros have a scale of 2^-127

/// Returns `scales` of the weight's blocks or channels, one value per element.
std::vector<float> spread(Grid grid, Tensor scales, const Shape& shape) {
  // Axes and blocks of the grid stay, so that the mapping is the quantizer's own.
  grid.format = Format(IntFormat{});
  grid.scale = std::move(scales);
  grid.scale_bits = 0;
  grid.unit = 1;
  // Dequantizing codes of 1 returns the scale of each element.
  return dequantize({Tensor::full(shape, 1, DType::i8), grid, {}}).to_vector<float>();
}

Grid quantized_grid(const WeightedLayer& layer) {
  const NoGrad no_grad;
  return layer.quant->weight_quantizer()->weight(layer.weight).quantized()->grid;
}

/// Returns the scales, with 0 for ranges that are too small to divide by. Those weights have only the code 0.
Tensor usable_scales(const Grid& grid) {
  Tensor scales = grid.scale.clone();
  auto* values = scales.mutable_data<float>();
  const auto* amax = grid.amax.data<float>();
  // As in the formulas of grids: an integer range up to least_amax has scale 0.
  const float least = grid.format.is_integer() ? detail::least_amax : kLeastFloatRange;
  for (std::int64_t i = 0; i < scales.numel(); ++i)
    if (amax[i] <= least) values[i] = 0.0f;
  return scales;
}

/// Returns the range index of each element. Spreads 12 bits at a time, because f32 counts exactly to 2^24
/// only.
std::vector<std::size_t> spread_indices(const Grid& grid, const Shape& shape) {
  constexpr std::size_t radix = 1 << 12;
  std::vector<float> low(static_cast<std::size_t>(grid.scale.numel())), high(low.size());
  for (std::size_t i = 0; i < low.size(); ++i) {
    low[i] = static_cast<float>(i % radix);
    high[i] = static_cast<float>(i / radix);
  }
  const auto lower = spread(grid, Tensor::from(low, grid.scale.shape()), shape),
             upper = spread(grid, Tensor::from(high, grid.scale.shape()), shape);
  std::vector<std::size_t> out(lower.size());
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<std::size_t>(upper[i]) * radix + static_cast<std::size_t>(lower[i]);
  return out;
}

/// Returns the code of the bound for the largest element of each block whose scale is not the smallest.
std::vector<float> largest_codes(const Grid& grid, const Tensor& weight) {
  const auto blocks = spread_indices(grid, weight.shape());
  const auto* w = weight.data<float>();
  std::vector<std::size_t> largest(static_cast<std::size_t>(grid.scale.numel()), blocks.size());
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    std::size_t& at = largest[blocks[i]];
    if (at == blocks.size() || std::abs(w[i]) > std::abs(w[at])) at = i;
  }
  std::vector<float> out(blocks.size(), 0.0f);
  const auto* scales = grid.scale.data<float>();
  for (std::size_t block = 0; block < largest.size(); ++block)
    // At the smallest block scale, smaller ranges round to the same scale: no code needs to be fixed.
    if (scales[block] > kLeastE4m3 * grid.unit)
      out[largest[block]] = std::copysign(grid.format.bound(), w[largest[block]]);
  return out;
}

}  // namespace

float WeightGrid::code(std::size_t i, float v) const {
  // See the declaration: this code keeps the block's scale.
  if (!fixed_codes.empty() && fixed_codes[i] != 0.0f) return fixed_codes[i];
  if (!(scales[i] > 0.0f)) return 0.0f;
  const float code =
      minifloat ? minifloat->round(v / scales[i]) : scalar::quantize_code(v, scales[i], lower, upper);
  return code + 0.0f;  // no -0
}

float WeightGrid::value(std::size_t i, float code) const { return scalar::dequantize_code(code, scales[i]); }

Tensor WeightGrid::rounding_errors(const Tensor& weight) const {
  Tensor out = Tensor::empty({weight.dim(0), weight.numel() / weight.dim(0)});
  const auto* w = weight.data<float>();
  auto* error = out.mutable_data<float>();
  for (std::size_t i = 0; i < scales.size(); ++i) error[i] = value(i, code(i, w[i])) - w[i];
  return out;
}

std::string reason_against_rounding(const WeightedLayer& layer) {
  if (layer.quant == nullptr) return "is not quantized";
  TensorQuantizer& q = *layer.quant->weight_quantizer();
  if (dynamic_cast<SequentialQuantizer*>(&q) != nullptr) return "has several weight quantizers in sequence";
  if (!q.enabled()) return "has weights in float";
  if (q.params().arithmetic != Arithmetic::deployed) return "is quantized by the reference's arithmetic";
  const QuantDescriptor& d = q.descriptor();
  // Chosen values would change the ranges, and then be rounded again on another grid.
  if (d.dynamic() || (d.has_dynamic_blocks() && !d.block_sizes().scale_bits)) return kRecomputed;
  if (d.learn_amax()) return "learns the ranges of its weights";
  return {};
}

std::string reason_against_codes(const WeightedLayer& layer) {
  std::string reason = reason_against_rounding(layer);
  if (!reason.empty()) return reason;
  const QuantDescriptor& d = layer.quant->weight_quantizer()->descriptor();
  if (!d.format().is_integer()) return "has weights of a float format";
  return d.has_dynamic_blocks() ? kRecomputed : "";
}

WeightGrid weight_grid(const WeightedLayer& layer) {
  const Grid grid = quantized_grid(layer);
  const Tensor weight = layer.weight.tensor();
  const QuantDescriptor& d = layer.quant->weight_quantizer()->descriptor();
  WeightGrid out{spread(grid, usable_scales(grid), weight.shape()), grid.format.lower(), grid.format.bound()};
  if (!grid.format.is_integer()) out.minifloat = Minifloat::of(grid.format.floating());
  if (!d.has_dynamic_blocks()) return out;
  out.lower = -out.upper;  // a code of `lower` would give its block another range
  if (d.block_sizes().scale_bits == NumBits(4, 3)) out.fixed_codes = largest_codes(grid, weight);
  return out;
}

std::vector<std::size_t> range_indices(const WeightedLayer& layer) {
  return spread_indices(quantized_grid(layer), layer.weight.shape());
}

}  // namespace fq::ptq
