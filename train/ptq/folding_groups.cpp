#include <algorithm>
#include <map>
#include <set>

#include "fakequant/core/ops/operators.h"
#include "fakequant/train/ptq/detail/channel_scaling.h"

namespace fq::ptq {
namespace {

/// Finds the layers that read given channels.
class Readers {
 public:
  Readers(const TraceGraph& graph, const std::vector<WeightedLayer>& layers) : graph_(graph) {
    for (const auto& layer : layers) by_output_[layer.output] = &layer;
  }

  /// Returns the readers of `value`; empty unless all are weighted layers. Channels are on axis 1, or on the
  /// last axis of `tokens`.
  std::vector<WeightedLayer> of(int value, bool tokens) const {
    std::vector<WeightedLayer> found;
    if (!collect(value, tokens, found)) return {};
    return found;
  }

 private:
  const TraceValue& at(int value) const { return graph_.values[static_cast<std::size_t>(value)]; }

  bool collect(int value, bool tokens, std::vector<WeightedLayer>& found) const {
    // A network's output must not be scaled.
    if (value == graph_.output || at(value).readers.empty()) return false;
    return std::ranges::all_of(at(value).readers, [&](int reader) {
      const TraceNode& node = graph_.nodes[static_cast<std::size_t>(reader)];
      if (const auto layer = by_output_.find(node.output); layer != by_output_.end()) {
        // The value must be the layer's input, not its weight, and have its channels on the axis that the
        // layer reads. In two axes, both layouts agree.
        const bool fits = node.inputs[0] == value && (layer->second->linear() == tokens || is_flat(value));
        found.push_back(*layer->second);
        return fits;
      }
      const OperatorTraits& op = traits(node.op);
      // f(a x) = a f(x) for a > 0 lets a factor pass. With channels on the last axis, operators over
      // positions of images do not apply.
      if (!op.is_homogeneous || (tokens && !op.per_element && !(node.op == "flatten" && is_flat(value))))
        return false;
      // A flatten that keeps more than two axes mixes channels and positions.
      const bool flattens = node.op == "flatten" && at(node.output).shape.size() != 2;
      return !flattens && collect(node.output, tokens, found);
    });
  }
  bool is_flat(int value) const { return at(value).shape.size() == 2; }

  const TraceGraph& graph_;
  std::map<int, const WeightedLayer*> by_output_;
};

Producer norm_producer(Module& norm, const std::string& path) {
  Producer out{.path = path, .weight = {}, .bias = {}, .norm = true};
  for (const auto& [name, parameter] : norm.named_parameters()) {
    if (name == "weight") out.weight = parameter;
    if (name == "bias") out.bias = parameter;
  }
  return out;
}

void add_folding(ScaleGroups& out, std::set<std::string>& read, Producer producer,
                 std::vector<WeightedLayer> readers) {
  const std::int64_t channels = producer.weight.dim(0);
  // Flattened images have a whole number of inputs per channel.
  const bool whole =
      std::ranges::all_of(readers, [&](const auto& r) { return r.channels() % channels == 0; });
  if (readers.empty() || !whole) return;
  for (const auto& reader : readers) read.insert(reader.path);
  out.groups.push_back({std::move(producer), std::move(readers), channels});
}

}  // namespace

ScaleGroups folding_groups(Module& model, const TraceGraph& graph) {
  ScaleGroups out;
  const WeightedLayers all = weighted_layers(model, graph);
  out.skipped = all.skipped;
  const Readers readers(graph, all.layers);
  std::map<int, const WeightedLayer*> makers;
  for (const auto& layer : all.layers) makers[layer.output] = &layer;
  std::map<std::string, int> calls;
  for (const auto& node : graph.nodes) ++calls[node.path];
  std::set<std::string> read;
  for (const auto& node : graph.nodes) {
    Producer producer;
    if (const auto layer = makers.find(node.output); layer != makers.end())
      producer = {.path = node.path, .weight = layer->second->weight, .bias = layer->second->bias};
    // A norm that runs twice has two sets of readers.
    else if (traits(node.op).is_norm && calls[node.path] == 1)
      producer = norm_producer(model.at(node.path), node.path);
    // Norms over several axes have no weight per channel.
    if (!producer.weight.defined() || (producer.norm && producer.weight.rank() != 1)) continue;
    const bool tokens = node.op == "linear" || node.op == "layer_norm";
    add_folding(out, read, std::move(producer), readers.of(node.output, tokens));
  }
  for (const auto& layer : all.layers)
    if (!read.contains(layer.path)) out.skipped.push_back({layer.path, "has no layer before it to scale"});
  return out;
}

}  // namespace fq::ptq
