#include "fakequant/train/ptq/detail/weight_grid.h"

#include <numeric>

#include "fakequant/core/numerics/detail/formulas.h"
#include "fakequant/layers/quantizer/sequential_quantizer.h"

namespace fq::ptq {
namespace {

/// A spec of the weight's blocks with other scales, spread over the elements.
std::vector<float> spread(QuantSpec spec, Tensor scales, const Shape& shape) {
  spec.format = Format(IntFormat{});
  spec.scale = std::move(scales);
  spec.scale_bits = 0;
  spec.unit = 1;
  return dequantize({Tensor::full(shape, 1, DType::i8), spec, {}}).to_vector<float>();
}

QuantSpec spec_of(const WeightedLayer& layer) {
  const NoGrad no_grad;
  return layer.quant->weight_quantizer()->weight(layer.weight).quantized()->spec;
}

/// Ranges that are too small to be divided by have no code but 0.
Tensor scales_of(const QuantSpec& spec) {
  Tensor scales = spec.scale.clone();
  auto* values = scales.mutable_data<float>();
  const auto* amax = spec.amax.data<float>();
  for (std::int64_t i = 0; i < scales.numel(); ++i)
    if (amax[i] <= 0x1p-24f) values[i] = 0.0f;
  return scales;
}

}  // namespace

float WeightGrid::code(std::size_t i, float v) const {
  return scales[i] > 0.0f ? scalar::quantize_code(v, scales[i], lower, upper) + 0.0f : 0.0f;  // no -0
}

float WeightGrid::value(std::size_t i, float code) const { return scalar::dequantize_code(code, scales[i]); }

Tensor WeightGrid::rounding_errors(const Tensor& weight) const {
  Tensor out = Tensor::empty({weight.dim(0), weight.numel() / weight.dim(0)});
  const auto* w = weight.data<float>();
  auto* error = out.mutable_data<float>();
  for (std::size_t i = 0; i < scales.size(); ++i) error[i] = value(i, code(i, w[i])) - w[i];
  return out;
}

std::string reason_against_codes(const WeightedLayer& layer) {
  if (layer.quant == nullptr) return "is not quantized";
  TensorQuantizer& q = *layer.quant->weight_quantizer();
  if (dynamic_cast<SequentialQuantizer*>(&q) != nullptr) return "has several weight quantizers in sequence";
  if (!q.enabled()) return "has weights in float";
  if (q.settings().arithmetic != Arithmetic::deployed) return "is quantized by the reference's arithmetic";
  if (!q.descriptor().format().is_integer()) return "has weights of a float format";
  if (!q.descriptor().needs_amax() || q.descriptor().has_dynamic_blocks())
    return "takes the ranges of its weights anew each time";
  if (q.descriptor().learn_amax()) return "learns the ranges of its weights";
  return {};
}

WeightGrid weight_grid(const WeightedLayer& layer) {
  const QuantSpec spec = spec_of(layer);
  const auto& format = spec.format.integer();
  return {spread(spec, scales_of(spec), layer.weight.shape()), float(format.lower()), float(format.upper())};
}

std::vector<std::size_t> range_indices(const WeightedLayer& layer) {
  const QuantSpec spec = spec_of(layer);
  std::vector<float> numbers(static_cast<std::size_t>(spec.scale.numel()));
  std::iota(numbers.begin(), numbers.end(), 0.0f);
  const auto indices = spread(spec, Tensor::from(numbers, spec.scale.shape()), layer.weight.shape());
  return {indices.begin(), indices.end()};
}

}  // namespace fq::ptq
