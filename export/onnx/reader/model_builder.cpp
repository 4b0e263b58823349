#include "fakequant/export/onnx/reader/model_builder.h"

#include <algorithm>
#include <cctype>

#include "fakequant/layers/model/detail/meta_scope.h"

namespace fq::detail {
namespace {

constexpr std::int64_t kMostElements = std::int64_t{1} << 33;  // largest value of one sample

// Builds the layer with the registry of model files, so that an import can be loaded again, and runs it on
// `meta`, which computes shapes and allocates no values.
Shape output_shape(const ModelNode& node, const std::vector<Shape>& shapes, ModelBudget& budget) {
  const auto layer = layer_registry().find(node.type)->second.make(LayerOptions(node, shapes, 0, budget));
  const MetaScope scope(*layer);
  std::vector<Variable> inputs;
  for (const auto& shape : shapes) inputs.emplace_back(Tensor::empty(shape, DType::f32, Device::meta()));
  const Variable y = inputs.size() == 1 ? (*layer)(inputs[0]) : (*layer)(inputs);
  return y.shape();
}

/// Removes the place of the node from an error message.
std::string unplaced(std::string message, const NodePlace& place) {
  if (message.starts_with(place.origin())) message.erase(0, place.origin().size());
  return message;
}

constexpr std::size_t kLongest = 80;

std::vector<std::string> split(const std::string& text, char mark) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  for (std::size_t end = 0; end != std::string::npos; begin = end + 1) {
    end = text.find(mark, begin);
    const auto part = text.substr(begin, end == std::string::npos ? end : end - begin);
    if (!part.empty()) parts.push_back(part);
  }
  return parts;
}

/// Returns "layer1.0.conv1" for the weight "layer1.0.conv1.weight". Generated names give an empty text.
std::string weight_path(const OnnxNode& node) {
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    const std::string& name = node.inputs[i];
    const auto dot = name.rfind('.');
    if (dot != std::string::npos && dot > 0 && name.find_first_of(":/") == std::string::npos)
      return name.substr(0, dot);
  }
  return {};
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
    from.fail("{}", show_batch_symbol(unplaced(error.what(), node.place)));
  }
  // Fixed values have a first axis of 1 that broadcasts against the batch.
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
  // Layers are in the order of execution: one pass from the end finds all that the output needs.
  std::set<std::string> needed{output.node};
  for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node)
    if (needed.contains(node->name)) needed.insert(node->inputs.begin(), node->inputs.end());
  ModelNodes nodes;
  StateDict state;
  for (const Layer& node : nodes_) {
    // Unused parts stay, because rows of the data set contain them.
    if (!needed.contains(node.name) && node.type != "input_part") continue;
    nodes.push_back(node);
    for (const auto& [kind, value_name, value] : node.values)
      state.set(fmt::format("{}/{}.{}", kind, node.name, value_name), value);
  }
  return {ModelSpec(name, std::move(nodes)), std::move(state)};
}

std::string legal_name(std::string text) {
  text.resize(std::min(text.size(), kLongest));
  for (char& c : text)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-') c = '_';
  return text;
}

std::string node_module_path(const OnnxNode& node) {
  auto parts = split(node.name.substr(0, 1000), '/');
  if (parts.size() < 2) return {};
  parts.pop_back();
  std::string path, last;
  for (const auto& part : parts) {
    // PyTorch writes each module with its whole path, "/layer1/layer1.0/conv1": the parts overlap.
    const bool repeats = !last.empty() && part.starts_with(last + ".");
    path += (path.empty() ? "" : ".") + (repeats ? part.substr(last.size() + 1) : part);
    last = part;
  }
  return path;
}

NodeNames::NodeNames(const std::vector<OnnxNode>& nodes) {
  for (const auto& node : nodes) paths_.insert(node_module_path(node));
}

bool NodeNames::is_shared(const std::string& path) const {
  const auto below = paths_.lower_bound(path + ".");
  return paths_.count(path) > 1 || (below != paths_.end() && below->starts_with(path + "."));
}

std::string NodeNames::name(const OnnxNode& node, const std::string& type, const std::string& suffix) const {
  const auto path = node_module_path(node), weights = weight_path(node);
  const std::string behind = suffix.empty() ? "" : "_" + suffix;
  if (!path.empty() && !is_shared(path)) return legal_name(path) + behind;
  if (!weights.empty()) return legal_name(weights) + behind;
  return legal_name(path.empty() ? "" : path + ".") + (suffix.empty() ? type : suffix);
}

}  // namespace fq::detail
