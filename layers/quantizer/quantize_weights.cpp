#include <vector>

#include "fakequant/layers/modules/quant_modules.h"
#include "fakequant/layers/quantizer/compress.h"
#include "fakequant/layers/quantizer/detail/weight_codes.h"
#include "fakequant/layers/quantizer/sequential_quantizer.h"

namespace fq {

void quantize_weights(Module& model) {
  struct Weight {
    TensorQuantizer* quantizer;
    Variable value;
  };
  std::vector<Weight> weights;
  std::vector<QuantizeRequest> requests;
  for (const auto& [path, module] : model.named_modules()) {
    const auto* layer = dynamic_cast<const QuantModule*>(module);
    TensorQuantizer* quantizer = layer != nullptr ? layer->weight_quantizer() : nullptr;
    if (quantizer == nullptr || dynamic_cast<SequentialQuantizer*>(quantizer) != nullptr) continue;
    const Variable value = layer->quantized_weight();
    auto request = value.defined() ? quantizer->weight_codes().request(value) : std::nullopt;
    if (!request) continue;
    weights.push_back({quantizer, value});
    requests.push_back(std::move(*request));
  }
  auto codes = quantize(requests);
  for (std::size_t i = 0; i < weights.size(); ++i)
    weights[i].quantizer->weight_codes().keep(weights[i].value, std::move(codes[i]));
}

}  // namespace fq
