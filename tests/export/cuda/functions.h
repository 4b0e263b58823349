#pragma once

/// Results of a function of a model, and the models that it runs on.

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fakequant/core/io/state_dict.h"
#include "fakequant/core/random.h"
#include "fakequant/layers/model/fold.h"
#include "fakequant/layers/modules/linear.h"
#include "fakequant/layers/modules/sequential.h"
#include "fakequant/train/calibration/calibrate.h"
#include "fakequant/train/ptq/algorithms.h"
#include "layers/networks.h"
#include "train/loop_run.h"

namespace fq::test {

inline const Shape kFunctionBatch = {1, 1, 8, 8};

/// Result of a function: numbers, which may differ slightly if sums have another order, and texts.
struct FunctionOutcome {
  std::vector<std::pair<std::string, double>> numbers = {};
  std::vector<std::string> words = {};

  void add(const std::string& name, double value) { numbers.emplace_back(name, value); }
  void add(const std::string& name, const Tensor& tensor) {
    const Tensor host = tensor.to(Device::cpu()).to(Layout::row_major);
    words.push_back(fmt::format("{} {} [{}]", name, fq::name(host.dtype()), fmt::join(host.shape(), ", ")));
    if (bit_width(host.dtype()) == 8) {
      const auto* bytes = static_cast<const std::uint8_t*>(host.raw());
      for (std::int64_t i = 0; i < host.numel(); ++i) add(name, bytes[i]);
    } else if (bit_width(host.dtype()) > 8) {
      for (const double value : host.to(DType::f64).to_vector<double>()) add(name, value);
    }
  }
  void add(const StateDict& state) {
    for (const auto& [name, tensor] : state.tensors()) add(name, tensor);
  }
  void add(const nlohmann::ordered_json& json) {
    const auto flat = json.flatten();
    for (const auto& [place, value] : flat.items())
      if (value.is_number())
        add(place, value.get<double>());
      else
        words.push_back(place + " " + value.dump());
  }
  void add(const ptq::Report& report) {
    for (const auto& layer : report.layers) add(layer.path, layer.after);
    for (const auto& layer : report.skipped) words.push_back(layer.path + " " + layer.reason);
  }
};

struct FunctionCase {
  const char* name;
  const char* preset;  ///< null for floats
  std::function<void(Module&, DataLoader&, FunctionOutcome&)> call;
  bool linear = false;  ///< a network without convolutions
};
inline void PrintTo(const FunctionCase& c, std::ostream* out) { *out << c.name; }

inline std::shared_ptr<const Dataset> function_data() { return quadrants(64, 9); }

inline std::shared_ptr<Module> linear_network() {
  auto model = std::make_shared<Sequential>();
  model->add("flat", make_flatten()).add("fc1", std::make_shared<Linear>(64, 128)).add("relu", make_relu());
  model->add("fc2", std::make_shared<Linear>(128, 10));
  return model;
}

/// With batch norm in floats, folded where it is quantized, and the ranges that the data has.
inline std::shared_ptr<Module> function_network(const FunctionCase& c) {
  const RandomScope seed(4, 0);
  std::shared_ptr<Module> model = residual_net();
  if (c.linear) model = linear_network();
  if (c.preset == nullptr) return model;
  fold_batch_norm(*model, kFunctionBatch);
  quantize(*model, QuantConfig::preset(c.preset), kFunctionBatch);
  DataLoader loader(function_data(), sequential_options());
  calibrate(*model, loader);
  return model;
}

}  // namespace fq::test
