#include "fakequant/core/ops/detail/product.h"
#include "fakequant/export/scales.h"
#include "fakequant/layers/modules/detail/layer_product.h"
#include "fakequant/layers/modules/detail/module_scopes.h"
#include "fakequant/layers/modules/quant_modules.h"
#include "fakequant/layers/quantizer/sequential_quantizer.h"

namespace fq {
namespace {

bool gives_codes(const TensorQuantizer& q) {
  return q.enabled() && q.quantizing() && q.params().arithmetic == Arithmetic::deployed &&
         q.descriptor().needs_amax() && !q.descriptor().has_dynamic_blocks();
}

/// Codes of no element: what products ask is how they are quantized.
Variable input_codes(const QuantModule& layer) {
  const auto inputs = layer.input_quantizers();
  if (inputs.size() != 1) return {};
  const TensorQuantizer& q = *quantizer_parts(*inputs[0]).back();
  if (!inputs[0]->enabled() || !gives_codes(q)) return {};
  const Grid grid = q.grid();
  return Variable(QuantizedTensor{Tensor::empty({0}, grid.format.code_dtype()), grid, {}});
}

}  // namespace

std::optional<LayerSums> layer_sums(Module& layer) {
  const auto* quant = dynamic_cast<QuantModule*>(&layer);
  const auto product = detail::layer_product(layer);
  if (quant == nullptr || !product || quant->weight_quantizer() == nullptr) return {};
  const detail::OnHost host(layer);
  const NoGrad no_grad;
  const Variable x = input_codes(*quant);
  if (!x.defined()) return {};
  const Variable w = quant->weight_quantizer()->weight(quant->quantized_weight());
  const int axis = quant->weight_axis();
  if (detail::code_kind(x, w, axis) != detail::CodeKind::integers) return {};
  const QuantizedTensor &a = *x.quantized(), &b = *w.quantized();
  LayerSums out{detail::product_scale(a, b, axis, product->channels), {}};
  if (product->bias.defined())
    out.bias = bias_codes(product->bias.tensor(), out.scale,
                          detail::largest_sum(a, b, product->terms, "layer_sums"));
  return out;
}

}  // namespace fq
