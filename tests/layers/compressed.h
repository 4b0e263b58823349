#pragma once

/// Quantized networks for the tests of weights kept as codes.

#include "fakequant/core/random.h"
#include "fakequant/layers/modules/sequential.h"
#include "fakequant/layers/quantizer/compress.h"
#include "layers/networks.h"

namespace fq::test {

inline const Shape kImage{1, 1, 8, 8};

/// conv - relu - conv (grouped) - relu - flatten - fc1 - relu - fc2: blocks whole and partial.
inline std::shared_ptr<Sequential> float_network() {
  const RandomScope seed(5, 0);
  const ops::ConvOptions grouped{.stride = {2}, .padding = {1}, .dilation = {}, .groups = 2};
  auto model = std::make_shared<Sequential>();
  model->add("conv", std::make_shared<Conv2d>(1, 6, Shape{3}))
      .add("relu", make_relu())
      .add("grouped", std::make_shared<Conv2d>(6, 10, Shape{3}, grouped, false))
      .add("relu2", make_relu())
      .add("flat", make_flatten())
      .add("fc1", std::make_shared<Linear>(90, 37))
      .add("relu3", make_relu())
      .add("fc2", std::make_shared<Linear>(37, 10));
  return model;
}

inline void calibrate_all(Module& model) {
  model.eval();
  const auto set_watching = [&](bool on) {
    for (auto& q : named_quantizers(model)) {
      q.quantizer->set_observing(on);
      q.quantizer->set_quantizing(!on);
    }
  };
  set_watching(true);
  const NoGrad no_grad;
  (void)model(Variable(random_tensor({16, 1, 8, 8}, -1, 1))).tensor();
  set_watching(false);
  for (auto& q : named_quantizers(model))
    if (q.quantizer->enabled() && q.quantizer->descriptor().needs_amax()) q.quantizer->load_calibrated_amax();
}

inline std::shared_ptr<Sequential> quantized(const QuantConfig& config) {
  auto model = float_network();
  quantize(*model, config, kImage);
  calibrate_all(*model);
  return model;
}
inline std::shared_ptr<Sequential> quantized(const std::string& preset) {
  return quantized(QuantConfig::preset(preset));
}

inline Tensor logits(Module& model) {
  const NoGrad no_grad;
  return model(Variable(random_tensor({8, 1, 8, 8}, -1, 1, 9))).tensor();
}

inline std::vector<QuantModule*> weight_layers(Module& model) {
  std::vector<QuantModule*> out;
  for (const auto& [path, module] : model.named_modules())
    if (auto* layer = dynamic_cast<QuantModule*>(module); layer != nullptr && layer->weight_quantizer())
      out.push_back(layer);
  return out;
}

inline QuantModule& layer(Module& model, const std::string& path) {
  return dynamic_cast<QuantModule&>(model.at(path));
}
inline Tensor weight(Module& model, const std::string& path) {
  return layer(model, path).quantized_weight().tensor();
}

inline std::vector<QuantizedTensor> all_codes(Module& model) {
  std::vector<QuantizedTensor> out;
  for (const auto* each : weight_layers(model)) out.push_back(weight_codes(*each));
  return out;
}

inline std::int64_t parameter_bytes(const Module& model) {
  std::int64_t bytes = 0;
  for (const auto& [name, parameter] : model.named_parameters()) bytes += parameter.tensor().nbytes();
  return bytes;
}

}  // namespace fq::test
