#include "fakequant/export/onnx/reader/model_builder.h"

#include <algorithm>

#include "fakequant/layers/model/detail/meta_scope.h"

namespace fq::detail {
namespace {

constexpr std::int64_t kMostElements = std::int64_t{1} << 33;  // of a value, for one sample

Shape output_shape(const ModelNode& node, const std::vector<Shape>& shapes, ModelBudget& budget) {
  const auto layer = layer_registry().find(node.type)->second.make(LayerOptions(node, shapes, 0, budget));
  const MetaScope on_meta(*layer);
  std::vector<Variable> inputs;
  for (const auto& shape : shapes) inputs.emplace_back(Tensor::empty(shape, DType::f32, Device::meta()));
  const Variable y = inputs.size() == 1 ? (*layer)(inputs[0]) : (*layer)(inputs);
  return y.shape();
}

/// The message of an error without the place of the node.
std::string unplaced(std::string message, const NodePlace& place) {
  if (message.starts_with(place.origin())) message.erase(0, place.origin().size());
  return message;
}

}  // namespace

ImportValue ModelBuilder::add(const NodeReader& from, const std::string& name, const std::string& type,
                              NodeOptions options, const std::vector<ImportValue>& inputs,
                              const std::vector<LayerValue>& values) {
  from.check(nodes_.size() < kMostNodes, "the graph has more than {} layers", kMostNodes);
  Layer node{{unique(name), type, std::move(options), {}, {}, NodePlace(from.origin())}, values, {}};
  std::vector<Shape> shapes;
  for (const auto& input : inputs) {
    from.check(!input.is_empty(), "it reads a value without elements: only a Concat may");
    node.inputs.push_back(input.node);
    shapes.push_back(input.shape);
  }
  ImportValue out{.node = node.name, .shape = {}, .constant = {}};
  try {
    const NoGrad no_grad;
    out.shape = output_shape(node, shapes, budget_);
  } catch (const ArgumentError& error) {
    from.fail("{}", with_batch_symbol(unplaced(error.what(), node.place)));
  }
  out.fixed = (type == "parameter" && out.shape.at(0) == 1) ||
              std::ranges::all_of(inputs, [](const ImportValue& input) { return input.fixed; });
  from.check(out.fixed || batch_axis(out.shape) >= 0, "it mixes samples: no axis of its output is the batch");
  from.check(sample_elements(out.shape) <= kMostElements,
             "its output has {} elements for one sample: {} are allowed", sample_elements(out.shape),
             kMostElements);
  node.output = out;
  place_.emplace(out.node, nodes_.size());
  nodes_.push_back(std::move(node));
  return out;
}

const ModelBuilder::Layer* ModelBuilder::find(const std::string& name) const {
  const auto found = place_.find(name);
  return found == place_.end() ? nullptr : &nodes_[found->second];
}

std::string ModelBuilder::unique(const std::string& name) {
  std::string out = name;
  for (int& i = next_[name]; !names_.insert(out).second;) out = fmt::format("{}_{}", name, ++i);
  return out;
}

ModelBuilder::Built ModelBuilder::finish(const std::string& name, const ImportValue& output) const {
  std::set<std::string> needed{output.node};
  for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node)
    if (needed.contains(node->name)) needed.insert(node->inputs.begin(), node->inputs.end());
  ModelNodes nodes;
  StateDict state;
  for (const Layer& node : nodes_) {
    if (!needed.contains(node.name) && node.type != "input_part") continue;
    nodes.push_back(node);
    for (const auto& [kind, value_name, value] : node.values)
      state.set(fmt::format("{}/{}.{}", kind, node.name, value_name), value);
  }
  return {ModelSpec(name, std::move(nodes)), std::move(state)};
}

}  // namespace fq::detail
