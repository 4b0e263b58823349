#pragma once

/// Small networks trained on the digits, for tests of algorithms on weights.

#include <memory>
#include <string>

#include "fakequant/core/io/state_file.h"
#include "fakequant/layers/fold.h"
#include "fakequant/layers/model_file.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/train/calibrate.h"
#include "fakequant/train/data/hdf5_dataset.h"
#include "fakequant/train/evaluate.h"
#include "fakequant/train/ptq/channel_scaling.h"
#include "fakequant/train/ptq/float_run.h"

namespace fq::test {

inline std::shared_ptr<const Dataset> digits(const std::string& split) {
  return std::make_shared<Hdf5Dataset>(FAKEQUANT_SOURCE_DIR "/data/digits.h5",
                                       Hdf5DatasetOptions{.split = split});
}

inline std::unique_ptr<DataLoader> digit_batches(const std::string& split) {
  return std::make_unique<DataLoader>(digits(split), LoaderOptions{.batch_size = 128, .shuffle = false});
}

inline Shape digit_shape() { return {1, 1, 8, 8}; }

/// "cnn": three convolutions, the second by groups, the third by depth, with batch norm; then linear.
/// "mlp": two hidden layers.
inline const char* model_text(const std::string& name) {
  if (name == "mlp")
    return R"({"nodes": [{"name": "flatten", "type": "flatten"},
      {"name": "fc1", "type": "linear", "options": {"out_features": 48}}, {"name": "relu1", "type": "relu"},
      {"name": "fc2", "type": "linear", "options": {"out_features": 32}}, {"name": "relu2", "type": "relu"},
      {"name": "fc3", "type": "linear", "options": {"out_features": "classes"}}]})";
  return R"({"nodes": [
    {"name": "conv1", "type": "conv2d", "options": {"out_channels": 16, "kernel": 3, "padding": 1}},
    {"name": "bn1", "type": "batch_norm"}, {"name": "relu1", "type": "relu"},
    {"name": "conv2", "type": "conv2d", "options": {"out_channels": 24, "kernel": 3, "padding": 1, "groups": 2}},
    {"name": "bn2", "type": "batch_norm"}, {"name": "relu2", "type": "relu"},
    {"name": "pool", "type": "max_pool", "options": {"kernel": 2}},
    {"name": "conv3", "type": "conv2d", "options": {"out_channels": 24, "kernel": 3, "padding": 1, "groups": 24}},
    {"name": "bn3", "type": "batch_norm"}, {"name": "relu3", "type": "relu"},
    {"name": "flatten", "type": "flatten"},
    {"name": "fc", "type": "linear", "options": {"out_features": "classes"}}]})";
}

inline std::shared_ptr<Graph> untrained(const std::string& name) {
  auto model = build_model(ModelSpec::parse(model_text(name)), {1, 8, 8}, 10);
  if (name == "cnn") (void)fold_batch_norm(*model, digit_shape());
  return model;
}

inline std::string weights_file(const std::string& name) {
  return FAKEQUANT_SOURCE_DIR "/tests/data/digits_" + name + ".h5";
}

/// The trained network; tests/train/ptq/networks_test.cpp writes its file.
inline std::shared_ptr<Graph> trained(const std::string& name) {
  auto model = untrained(name);
  const StateDict state = load_state(weights_file(name), "weights");
  for (auto& [path, parameter] : model->named_parameters())
    parameter.mutable_tensor().copy_from(state.at(path));
  model->eval();
  return model;
}

/// Every fifth channel between layers is made `factor` times as large, and read by as much smaller weights:
/// the same network with outlier channels.
inline void add_outliers(Module& model, float factor) {
  for (const auto& group : ptq::folding_groups(model, ptq::float_graph(model, digit_shape())).groups) {
    std::vector<float> factors(static_cast<std::size_t>(group.channels), 1.0f);
    for (std::size_t c = 2; c < factors.size(); c += 5) factors[c] = 1 / factor;
    ptq::scale_channels(group, factors);
  }
}

/// A quantization config of weights per output channel of so many bits, and inputs; 0 leaves them float.
inline QuantConfig integers(int weight_bits, int input_bits) {
  std::string text = R"({"rules": [{"pattern": "*weight_quantizer", "num_bits": )" +
                     std::to_string(weight_bits) + R"(, "axis": 0, "narrow_range": true})";
  if (input_bits > 0)
    text += R"(, {"pattern": "*input_quantizer", "num_bits": )" + std::to_string(input_bits) + "}";
  return QuantConfig::parse(text + "]}");
}

inline double accuracy(Module& model) { return evaluate(model, *digit_batches("test")).accuracy; }

inline std::vector<float> logits(Module& model) {
  return predict(model, *digit_batches("test")).to_vector<float>();
}

/// The largest difference over the largest magnitude.
inline double relative_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double most = 0, difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(double(a[i])));
    difference = std::max(difference, std::abs(double(a[i]) - double(b.at(i))));
  }
  return difference / most;
}

}  // namespace fq::test
