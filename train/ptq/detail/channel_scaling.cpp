#include "fakequant/train/ptq/detail/channel_scaling.h"

#include <algorithm>
#include <map>
#include <set>

#include "fakequant/core/ops/elementwise.h"

namespace fq::ptq {
namespace {

/// Multiplies row c of a parameter by factors[c].
void scale_rows(Variable parameter, const std::vector<float>& factors) {
  if (!parameter.defined()) return;
  auto* values = parameter.mutable_tensor().mutable_data<float>();
  const std::int64_t length = parameter.numel() / static_cast<std::int64_t>(factors.size());
  for (const float factor : factors)
    for (std::int64_t i = 0; i < length; ++i) *values++ *= factor;
}

std::vector<float> reciprocals(std::vector<float> values) {
  for (float& v : values) v = 1.0f / v;
  return values;
}

void divide_input(const WeightedLayer& reader, const std::vector<float>& factors) {
  TensorQuantizer& q = *reader.quant->input_quantizers()[0];
  Shape shape{reader.channels()};
  if (!reader.linear()) {
    shape = Shape(static_cast<std::size_t>(reader.weight.rank()), 1);
    shape[1] = reader.channels();
  }
  // The quantizer multiplies its input by pre_quant_scale: [channels] for rows, [1, channels, 1, ..] for
  // images.
  Tensor scale = Tensor::from(reciprocals(factors), shape);
  const NoGrad no_grad;
  // A scale that is there already stays in force: factors multiply.
  if (q.params().pre_quant_scale.defined())
    scale = ops::multiply(Variable(q.params().pre_quant_scale), Variable(scale)).tensor();
  q.update([&](QuantParams& params) { params.pre_quant_scale = scale; });
}

/// Returns for each quantizer the number of layer inputs that use it.
std::map<const TensorQuantizer*, int> quantizer_uses(Module& model) {
  std::map<const TensorQuantizer*, int> out;
  for (auto& [path, module] : model.named_modules())
    if (auto* quant = dynamic_cast<QuantModule*>(module))
      for (const auto& slot : quant->input_quantizers()) ++out[slot.get()];
  return out;
}

std::string reason_to_skip(const ScaleGroup& group, int uses) {
  const auto& first = group.readers.front();
  // A reader without weights, for example attention, would get scaled inputs without compensation.
  if (uses != static_cast<int>(group.readers.size()))
    return "shares its input with a module that is not a weighted layer";
  const bool same = std::ranges::all_of(group.readers, [&](const auto& r) {
    return r.channels() == first.channels() && r.weight.rank() == first.weight.rank();
  });
  if (!same) return "shares its input with a layer that sees other channels";
  // One factor for all values changes nothing: the range scales with it.
  if (first.channels() == 1) return "has one input channel";
  return {};
}

}  // namespace

ScaleGroups scale_groups(Module& model, const TraceGraph& graph) {
  ScaleGroups out = folding_groups(model, graph);
  std::set<std::string> read;
  for (const auto& group : out.groups)
    for (const auto& reader : group.readers) read.insert(reader.path);
  const WeightedLayers all = weighted_layers(model, graph);
  out.skipped = all.skipped;
  const auto uses = quantizer_uses(model);
  std::vector<std::pair<const TensorQuantizer*, ScaleGroup>> shared;
  // Layers without a producer to fold into: the input quantizer divides instead.
  for (const auto& layer : all.layers) {
    if (read.contains(layer.path)) continue;
    if (layer.quant == nullptr) {
      out.skipped.push_back({layer.path, "is not quantized, and has no layer before it to scale"});
      continue;
    }
    const TensorQuantizer* q = layer.quant->input_quantizers()[0].get();
    auto known = std::ranges::find(shared, q, [](const auto& entry) { return entry.first; });
    if (known == shared.end()) known = shared.insert(known, {q, ScaleGroup{{}, {}, layer.channels()}});
    known->second.readers.push_back(layer);
  }
  for (auto& [q, group] : shared) {
    const std::string reason = reason_to_skip(group, uses.at(q));
    if (reason.empty())
      out.groups.push_back(std::move(group));
    else
      for (const auto& reader : group.readers) out.skipped.push_back({reader.path, reason});
  }
  return out;
}

std::vector<float> largest_of_readers(const ScaleGroup& group,
                                      const std::vector<std::vector<float>>& values) {
  std::vector<float> out(static_cast<std::size_t>(group.channels), 0.0f);
  for (const auto& list : values) {
    // A flattened image has `repeat` neighbouring inputs for each channel.
    const std::size_t repeat = list.size() / out.size();
    for (std::size_t i = 0; i < list.size(); ++i) out[i / repeat] = std::max(out[i / repeat], list[i]);
  }
  return out;
}

std::vector<float> reader_factors(const ScaleGroup& group, const WeightedLayer& reader,
                                  const std::vector<float>& factors) {
  const auto repeat = static_cast<std::size_t>(reader.channels() / group.channels);
  std::vector<float> out(static_cast<std::size_t>(reader.channels()));
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = factors[i / repeat];
  return out;
}

void scale_channels(const ScaleGroup& group, const std::vector<float>& factors) {
  if (group.folds()) {
    // Row c of the weight and the bias make channel c, so that both are divided.
    scale_rows(group.producer.weight, reciprocals(factors));
    scale_rows(group.producer.bias, reciprocals(factors));
  } else {
    divide_input(group.readers.front(), factors);
  }
  for (const auto& reader : group.readers) scale_inputs(reader, reader_factors(group, reader, factors));
}

}  // namespace fq::ptq
