#include "fakequant/export/onnx/reader/model_builder.h"

#include <algorithm>

#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/layers/model/detail/meta_scope.h"
#include "fakequant/layers/model/detail/model_nodes.h"

namespace fq::detail {
namespace {

using nlohmann::ordered_json;

constexpr std::int64_t kMostElements = std::int64_t{1} << 33;  // of a value, for one sample

/// Errors of options begin with "[import_onnx] line 1: ", and shapes in errors of layers with our batch.
std::string readable(std::string message) {
  const std::string place = "[import_onnx] line 1: ";
  if (message.starts_with(place)) message.erase(0, place.size());
  return with_readable_batch(std::move(message));
}

Shape output_shape(const ordered_json& node, const std::vector<Shape>& shapes, ModelBudget& budget) {
  const JsonText text = JsonText::of_value(node, node.dump(), "import_onnx");
  const JsonValue entry(text);
  const auto& type = layer_registry().find(node["type"].get<std::string>())->second;
  const auto layer = type.make(LayerOptions(entry, shapes, 0, budget));
  const MetaScope on_meta(*layer);
  std::vector<Variable> inputs;
  for (const auto& shape : shapes) inputs.emplace_back(Tensor::empty(shape, DType::f32, Device::meta()));
  const Variable y = inputs.size() == 1 ? (*layer)(inputs[0]) : (*layer)(inputs);
  return y.shape();
}

}  // namespace

ImportValue ModelBuilder::add(const NodeReader& from, const std::string& name, const std::string& type,
                              ordered_json options, const std::vector<ImportValue>& inputs,
                              const std::vector<LayerValue>& values) {
  from.check(nodes_.size() < kMostNodes, "the graph has more than {} layers", kMostNodes);
  Layer node{{{"name", unique(name)}, {"type", type}}, {}, values, {}};
  if (!options.empty()) node.json["options"] = std::move(options);
  std::vector<Shape> shapes;
  for (const auto& input : inputs) {
    from.check(!input.is_empty(), "it reads a value without elements: only a Concat may");
    node.inputs.push_back(input.node);
    shapes.push_back(input.shape);
  }
  ImportValue out{.node = node.json["name"].get<std::string>(), .shape = {}, .constant = {}};
  try {
    const NoGrad no_grad;
    out.shape = output_shape(node.json, shapes, budget_);
  } catch (const ArgumentError& error) {
    from.fail("{}", readable(error.what()));
  }
  out.fixed = (type == "parameter" && out.shape.at(0) == 1) ||
              std::ranges::all_of(inputs, [](const ImportValue& input) { return input.fixed; });
  from.check(out.fixed || batch_axis(out.shape) >= 0, "it mixes samples: no axis of its output is the batch");
  from.check(numel(out.shape) / kAbstractBatch <= kMostElements,
             "its output has {} elements for one sample: {} are allowed", numel(out.shape) / kAbstractBatch,
             kMostElements);
  node.json["inputs"] = node.inputs;
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
    if (needed.contains(node->json["name"].get<std::string>()))
      needed.insert(node->inputs.begin(), node->inputs.end());
  Built built;
  auto list = ordered_json::array();
  for (const Layer& node : nodes_) {
    const auto own = node.json["name"].get<std::string>();
    if (!needed.contains(own) && node.json["type"] != "input_part") continue;
    list.push_back(node.json);
    for (const auto& [kind, value_name, value] : node.values)
      built.state.set(fmt::format("{}/{}.{}", kind, own, value_name), value);
  }
  built.text = ordered_json{{"name", name}, {"nodes", std::move(list)}}.dump(1);
  return built;
}

}  // namespace fq::detail
