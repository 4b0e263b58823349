#include "fakequant/train/loop/detail/static_weights.h"

#include <set>

#include "fakequant/core/detail/check.h"
#include "fakequant/layers/modules/quant_modules.h"
#include "fakequant/layers/quantizer/compress.h"
#include "fakequant/layers/quantizer/sequential_quantizer.h"

namespace fq::detail {
namespace {

bool is_static(QuantModule& layer) {
  TensorQuantizer* q = layer.weight_quantizer();
  if (q == nullptr || quantizer_parts(*q).size() != 1 || !q->enabled() || !q->quantizing()) return false;
  const QuantDescriptor& d = q->descriptor();
  const Variable w = layer.quantized_weight();
  return d.fake_quant() && d.format().is_integer() && d.format().code_dtype() == DType::i8 &&
         d.needs_amax() && !d.has_dynamic_blocks() && q->settings().arithmetic == Arithmetic::deployed &&
         w.defined() && !holds_codes(w);
}

}  // namespace

QuantizedTensor static_codes(TensorQuantizer& quantizer, const Variable& values) {
  const NoGrad no_grad;
  return *quantizer.weight(values).quantized();
}

std::vector<float> steps_of(const QuantizedTensor& codes) {
  const Tensor ones = Tensor::full(codes.shape(), 1, codes.codes.dtype()).to(codes.codes.device());
  return dequantize({ones, codes.spec, {}}).to_vector<float>();
}

std::vector<StaticWeight> static_weights(Module& model, std::string_view function) {
  std::vector<StaticWeight> out;
  std::set<const TensorQuantizer*> known;
  for (const auto& [path, module] : model.named_modules()) {
    auto* layer = dynamic_cast<QuantModule*>(module);
    if (layer == nullptr || !is_static(*layer) || !known.insert(layer->weight_quantizer()).second) continue;
    out.push_back({path + ".weight_quantizer", layer->weight_quantizer(), layer->quantized_weight()});
  }
  FQ_CHECK(!out.empty(), function,
           "no weight has a static grid of integers of up to 8 bits: quantize "
           "some so, or leave it off");
  return out;
}

}  // namespace fq::detail
