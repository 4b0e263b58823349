#pragma once

/// Output errors of single layers on held-out images, computed by the operators themselves.

#include <map>
#include <string>

#include <gtest/gtest.h>

#include "fakequant/core/ops/conv.h"
#include "fakequant/core/ops/linear.h"
#include "train/ptq/networks.h"

namespace fq::test {

using Weights = std::map<std::string, Tensor>;

inline std::vector<ptq::WeightedLayer> list_layers(Module& model) {
  return ptq::weighted_layers(model, ptq::float_graph(model, digit_shape())).layers;
}

/// The factor of each layer's product: the dequantized weight, or the float weight if it is not quantized.
inline Weights multiplied_weights(Module& model) {
  const NoGrad no_grad;
  Weights out;
  for (const auto& layer : list_layers(model))
    out[layer.path] = layer.quant != nullptr ? layer.quant->weight_quantizer()->weight(layer.weight).tensor()
                                             : layer.weight.tensor().clone();
  return out;
}

/// Mean squared difference of each layer's output on the test images, with the inputs of `original`.
class HeldOutErrors : public Recorder {
 public:
  HeldOutErrors(Module& original, Weights weights) : weights_(std::move(weights)) {
    for (const auto& layer : list_layers(original)) layers_.emplace(layer.path, layer);
    ptq::run_batches(original, *digit_batches("test"), 0, *one_rank(), this, "test");
  }
  void record_op(std::string_view, const std::vector<Variable>& inputs, const Variable&,
                 Attributes) override {
    const auto layer = layers_.find(module_path());
    if (busy_ || layer == layers_.end()) return;
    busy_ = true;
    const auto exact = output(layer->second, inputs[0], layer->second.weight.tensor());
    const auto off = output(layer->second, inputs[0], weights_.at(layer->first));
    for (std::size_t i = 0; i < exact.size(); ++i)
      errors[layer->first] += (double(exact[i]) - double(off[i])) * (double(exact[i]) - double(off[i]));
    busy_ = false;
  }
  std::map<std::string, double> errors;

 private:
  static std::vector<float> output(const ptq::WeightedLayer& layer, const Variable& x, const Tensor& w) {
    if (layer.linear()) return ops::linear(x, Variable(w)).tensor().to_vector<float>();
    return ops::conv2d(x, Variable(w), {}, layer.options).tensor().to_vector<float>();
  }
  Weights weights_;
  std::map<std::string, ptq::WeightedLayer> layers_;
  bool busy_ = false;
};

/// Quantized and calibrated.
inline std::shared_ptr<Graph> calibrated(const std::string& name, const QuantConfig& config) {
  auto model = trained(name);
  (void)quantize(*model, config, digit_shape());
  (void)calibrate(*model, *digit_batches("train"), {.samples = 512});
  return model;
}

/// The weights equal code * scale: quantizing does not change them.
inline void expect_weights_on_their_grid(Module& model) {
  const auto values = multiplied_weights(model);
  for (const auto& layer : list_layers(model))
    EXPECT_TRUE(bitwise_equal(layer.weight.tensor(), values.at(layer.path))) << layer.path;
}

/// With `choose` every layer's held-out error is smaller than with rounding to the nearest code.
template <class Choose>
void expect_smaller_errors(const std::string& name, const QuantConfig& config, Choose&& choose) {
  auto original = trained(name), model = calibrated(name, config);
  const auto nearest = HeldOutErrors(*original, multiplied_weights(*model)).errors;
  const auto report = choose(*model);
  EXPECT_EQ(report.layers.size(), nearest.size());
  EXPECT_TRUE(report.skipped.empty());
  for (const auto& layer : report.layers) EXPECT_LT(layer.after, layer.before) << layer.path;
  const auto chosen = HeldOutErrors(*original, multiplied_weights(*model)).errors;
  for (const auto& [path, error] : nearest) {
    EXPECT_LT(chosen.at(path), error) << name << " " << path;
  }
  expect_weights_on_their_grid(*model);
}

}  // namespace fq::test
