#include "fakequant/layers/modules/quant_engine_layers.h"

#include "fakequant/core/ops/detail/engine_rows.h"
#include "fakequant/core/ops/linear.h"
#include "fakequant/layers/quantizer/detail/arithmetic.h"

namespace fq {

QuantEngineLinear::QuantEngineLinear(const Linear& layer, RowEngine engine)
    : QuantWeighted(layer), engine_(engine), kept_weight_(std::make_shared<detail::KeptEngineWeight>()) {}

Variable QuantEngineLinear::forward(const Variable& x) {
  const Child<TensorQuantizer> input = input_quantizers()[0];
  const Variable w = weight_quantizer()->weight(weight_);
  const bool rounds = input->enabled() && input->quantizing() && w.quantized() != nullptr;
  // The engine's arithmetic needs codes on both sides. Otherwise this is a float layer.
  if (!rounds) return finished(apply(input->enabled() && input->quantizing() ? x : input(x), w));
  const Tensor& factor = input->params().pre_quant_scale;
  const Variable scaled = factor.defined() ? detail::pre_quant_scaled(x, factor) : x;
  // kept_weight_ caches the weight in the engine's layout between calls.
  return finished(detail::engine_linear(scaled, w, bias_, engine_, *kept_weight_));
}

QuantEmbedding::QuantEmbedding(const Embedding& layer)
    : Embedding(Adopt{}, layer),
      weight_quantizer_(add_module("weight_quantizer", std::make_shared<TensorQuantizer>())) {}

Variable QuantEmbedding::forward(const Variable& x) {
  return ops::embedding(x, weight_quantizer_->weight(weight_));
}

}  // namespace fq
