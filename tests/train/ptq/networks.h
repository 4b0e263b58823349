#pragma once

/// Small networks trained on the digits, for tests of algorithms on weights.

#include <memory>
#include <string>

#include "fakequant/bench/ptq/network.h"
#include "fakequant/bench/ptq/outliers.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/train/calibration/calibrate.h"
#include "fakequant/train/data/hdf5_dataset.h"
#include "fakequant/train/loop/evaluate.h"

namespace fq::test {

inline std::shared_ptr<const Dataset> digits(const std::string& split) {
  return std::make_shared<Hdf5Dataset>(FAKEQUANT_SOURCE_DIR "/data/digits.h5",
                                       Hdf5DatasetOptions{.split = split});
}

inline std::unique_ptr<DataLoader> digit_batches(const std::string& split) {
  return std::make_unique<DataLoader>(digits(split), LoaderOptions{.batch_size = 128, .shuffle = false});
}

inline Shape digit_shape() { return {1, 1, 8, 8}; }

/// Networks of tests/data, trained by tests/data/generate.py. "cnn": three convolutions (the second grouped,
/// the third depthwise) and a linear layer. "mlp": two hidden layers.
inline std::shared_ptr<Graph> trained(const std::string& name) {
  return ptq::load_folded(FAKEQUANT_SOURCE_DIR "/tests/data/digits_" + name + ".h5");
}

/// With outlier channels of 50.
inline std::shared_ptr<Graph> with_outliers(const std::string& name) {
  auto model = trained(name);
  ptq::add_outliers(*model, *digit_batches("train"), 50);
  return model;
}

/// A quantization config with that number of bits for weights (per output channel) and inputs; 0: float.
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

inline double mean_squared_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    sum += (double(a[i]) - double(b.at(i))) * (double(a[i]) - double(b.at(i)));
  return sum / double(a.size());
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
