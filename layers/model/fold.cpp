#include "fakequant/layers/model/fold.h"

#include <algorithm>
#include <map>

#include "fakequant/core/ops/operators.h"
#include "fakequant/layers/modules/activation.h"
#include "fakequant/layers/modules/conv.h"
#include "fakequant/layers/modules/detail/module_scopes.h"
#include "fakequant/layers/modules/linear.h"
#include "fakequant/layers/modules/norm.h"
#include "fakequant/layers/quantizer/compress.h"
#include "fakequant/layers/quantizer/detail/folded_weight.h"

namespace fq {
namespace {

template <class Layer>
// w' = w * gamma / sqrt(var + eps), b' = (b - mean) * gamma / sqrt(var + eps) + beta, computed in double.
void fold_into(Layer& layer, const BatchNorm& norm) {
  layer.ensure_bias();
  const auto gamma = norm.weight().tensor().to_vector<float>(),
             beta = norm.bias().tensor().to_vector<float>();
  const auto mean = norm.running_mean().to_vector<float>(), variance = norm.running_var().to_vector<float>();
  std::vector<detail::FoldedChannel> channels;
  Variable bias = layer.bias();
  auto* b = bias.mutable_tensor().template mutable_data<float>();
  for (std::size_t c = 0; c < gamma.size(); ++c) {
    channels.push_back(detail::folded_channel(gamma[c], beta[c], mean[c], variance[c], norm.eps(), b[c]));
    b[c] = channels.back().bias;
  }
  auto* quant = dynamic_cast<QuantModule*>(&layer);
  // A quantized layer keeps its codes where that is possible (folded_weight.h).
  if (quant != nullptr && quant->weight_quantizer() != nullptr)
    detail::fold_into_weight(*quant, layer.channel_axis(), channels);
  else
    detail::scale_channels(layer.weight(), layer.channel_axis(), channels);
}

/// Whether the weight has one channel per output channel, as the batch norm needs it.
bool can_fold(const Module& model, const Module& layer) {
  const auto* conv = dynamic_cast<const Conv*>(&layer);
  if (conv != nullptr) return conv->weight().dim(conv->channel_axis()) == conv->out_channels();
  const auto* linear = dynamic_cast<const Linear*>(&layer);
  // A tied weight has another reader, which must not be scaled.
  return linear != nullptr && !is_tied(model, linear->weight());
}

/// Returns the first input of a node, before a conversion to floats that only this node reads.
const TraceValue& unconverted_input(const TraceGraph& graph, const TraceNode& node) {
  const TraceValue& value = graph.input(node, 0);
  if (value.producer < 0 || value.readers.size() != 1) return value;
  const TraceNode& producer = graph.nodes[static_cast<std::size_t>(value.producer)];
  return producer.op == "to_float" ? unconverted_input(graph, producer) : value;
}

void fold_pair(Module& layer, const BatchNorm& norm) {
  if (auto* conv = dynamic_cast<Conv*>(&layer))
    fold_into(*conv, norm);
  else
    fold_into(dynamic_cast<Linear&>(layer), norm);
}

}  // namespace

std::vector<FoldablePair> foldable_batch_norms(Module& model, const TraceGraph& graph) {
  // A layer or norm that runs several times cannot be folded into one weight.
  std::map<std::string, int> calls;
  for (const auto& node : graph.nodes)
    if (!traits(node.op).is_conversion) ++calls[node.path];
  std::vector<FoldablePair> out;
  for (const auto& node : graph.nodes) {
    if (node.op != "batch_norm" || calls[node.path] != 1) continue;
    const TraceValue& input = unconverted_input(graph, node);
    // Another reader of the layer's output needs the values before the norm.
    if (input.producer < 0 || input.readers.size() != 1) continue;
    const std::string& producer = graph.nodes[static_cast<std::size_t>(input.producer)].path;
    if (calls[producer] != 1 || node.path.empty() || producer.empty()) continue;
    if (dynamic_cast<const BatchNorm*>(&model.at(node.path)) != nullptr &&
        can_fold(model, model.at(producer)))
      out.push_back({node.path, producer});
  }
  return out;
}

std::vector<std::string> fold_batch_norm(Module& model, const Shape& input_shape) {
  const TraceGraph graph = trace(model, input_shape);
  if (std::ranges::any_of(graph.nodes, [](const auto& node) { return node.op == "batch_norm"; }))
    check_not_compressed(model, "fold_batch_norm");
  // Weights are folded on the host, also for a model on a GPU.
  const detail::OnHost host(model);
  std::vector<std::string> folded;
  for (const auto& [norm, layer] : foldable_batch_norms(model, graph)) {
    fold_pair(model.at(layer), dynamic_cast<const BatchNorm&>(model.at(norm)));
    model.replace(norm, make_identity());
    folded.push_back(norm);
  }
  return folded;
}

}  // namespace fq
