#include "fakequant/train/ptq/detail/weighted_layers.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "fakequant/core/ops/operators.h"
#include "fakequant/layers/modules/linear.h"

namespace fq::ptq {
namespace {

// Fills `out` from a module of type Layer. Returns false for other modules.
template <class Layer>
bool take(Module& module, WeightedLayer& out) {
  auto* layer = dynamic_cast<Layer*>(&module);
  if (layer == nullptr) return false;
  out.weight = layer->weight();
  out.bias = layer->bias();
  // Linear has no geometry: the defaults stay.
  if constexpr (!std::is_same_v<Layer, Linear>) out.options = layer->options();
  out.quant = dynamic_cast<QuantModule*>(&module);
  return true;
}

// A layer that runs several times has several inputs, and a tied weight several readers: one change of the
// weight would not fit all of them.
std::string reason_to_skip(const Module& model, Module& module, int calls, WeightedLayer& layer) {
  if (calls > 1) return "runs several times";
  if (!take<Linear>(module, layer) && !take<Conv1d>(module, layer) && !take<Conv2d>(module, layer))
    return "is not a linear layer, Conv1d or Conv2d";
  if (layer.weight.tensor().dtype() != DType::f32) return "has weights of another type than f32";
  if (is_tied(model, layer.weight)) return "has the weight of another layer";
  return {};
}

}  // namespace

WeightedLayers weighted_layers(Module& model, const TraceGraph& graph) {
  std::map<std::string, int> calls;
  for (const auto& node : graph.nodes)
    if (traits(node.op).is_product) ++calls[node.path];
  WeightedLayers out;
  for (const auto& node : graph.nodes) {
    // Zero calls mark a path that is listed already.
    if (!traits(node.op).is_product || calls[node.path] == 0) continue;
    WeightedLayer layer{.path = node.path, .input = node.inputs[0], .output = node.output};
    const auto reason = node.path.empty()
                            ? "is computed outside of any layer"
                            : reason_to_skip(model, model.at(node.path), calls[node.path], layer);
    if (reason.empty())
      out.layers.push_back(std::move(layer));
    else
      out.skipped.push_back({node.path, reason});
    calls[node.path] = 0;  // list each path once
  }
  return out;
}

std::vector<float> largest_by_channel(const WeightedLayer& layer) {
  std::vector<float> out(static_cast<std::size_t>(layer.channels()), 0.0f);
  const Tensor weight = layer.weight.tensor();
  const auto* w = weight.data<float>();
  for (std::int64_t row = 0; row < layer.rows(); ++row)
    for (std::int64_t k = 0; k < layer.columns(); ++k) {
      float& largest = out[static_cast<std::size_t>(layer.input_channel(row, k))];
      largest = std::max(largest, std::abs(*w++));
    }
  return out;
}

void scale_inputs(const WeightedLayer& layer, const std::vector<float>& factors) {
  Variable weight = layer.weight;
  auto* w = weight.mutable_tensor().mutable_data<float>();
  for (std::int64_t row = 0; row < layer.rows(); ++row)
    for (std::int64_t k = 0; k < layer.columns(); ++k)
      *w++ *= factors[static_cast<std::size_t>(layer.input_channel(row, k))];
}

}  // namespace fq::ptq
