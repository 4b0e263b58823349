#include "fakequant/export/onnx/reader/patterns/graph_view.h"

namespace fq::detail {
namespace {

/// Match of (x - mean) / sqrt(mean((x - mean)^2) + eps), with means over `axes`.
struct Normalized {
  std::string x;
  std::vector<std::int64_t> axes;
  double eps = 0;
};

/// Returns the axes of a mean with keepdims.
std::optional<std::vector<std::int64_t>> mean_axes(const GraphView& graph, const OnnxNode& mean) {
  const auto* keep = mean.attribute("keepdims");
  const auto* keepdims = keep != nullptr ? std::get_if<std::int64_t>(keep) : nullptr;
  if (keep != nullptr && (keepdims == nullptr || *keepdims != 1)) return std::nullopt;
  if (mean.inputs.size() == 2) return graph.integers(mean.inputs[1]);
  const auto* axes = mean.attribute("axes");
  const auto* list = axes != nullptr ? std::get_if<std::vector<std::int64_t>>(axes) : nullptr;
  return list != nullptr ? std::optional(*list) : std::nullopt;
}

// Up to opset 17 the axes are an attribute, later a second input.
const OnnxNode* find_mean(const GraphView& graph, const std::string& name) {
  const auto* mean = graph.maker(name, "ReduceMean", 1);
  return mean != nullptr ? mean : graph.maker(name, "ReduceMean", 2);
}

bool is_square(const GraphView& graph, const std::string& name, const std::string& x) {
  const auto* power = graph.maker(name, "Pow", 2);
  if (power != nullptr) return power->inputs[0] == x && graph.is_number(power->inputs[1], 2);
  const auto* product = graph.maker(name, "Mul", 2);
  return product != nullptr && product->inputs[0] == x && product->inputs[1] == x;
}

std::optional<Normalized> normalized(const GraphView& graph, const std::string& name) {
  const auto* quotient = graph.maker(name, "Div", 2);
  const auto* centered = quotient != nullptr ? graph.maker(quotient->inputs[0], "Sub", 2) : nullptr;
  const auto* root = quotient != nullptr ? graph.maker(quotient->inputs[1], "Sqrt", 1) : nullptr;
  const auto* sum = root != nullptr ? graph.maker(root->inputs[0], "Add", 2) : nullptr;
  if (centered == nullptr || sum == nullptr) return std::nullopt;
  const bool eps_last = graph.number(sum->inputs[1]).has_value();
  const auto eps = graph.number(sum->inputs[eps_last ? 1 : 0]);
  const auto *variance = find_mean(graph, sum->inputs[eps_last ? 0 : 1]),
             *mean = find_mean(graph, centered->inputs[1]);
  if (!eps || variance == nullptr || mean == nullptr || mean->inputs[0] != centered->inputs[0])
    return std::nullopt;
  const auto axes = mean_axes(graph, *mean);
  const bool fits = axes && axes == mean_axes(graph, *variance) &&
                    is_square(graph, variance->inputs[0], quotient->inputs[0]);
  return fits ? std::optional(Normalized{mean->inputs[0], *axes, *eps}) : std::nullopt;
}

/// The normalized value and the name of its scale. "" without a scale.
struct Scaled {
  Normalized value;
  std::string scale;
};

std::optional<Scaled> scaled(const GraphView& graph, const std::string& name) {
  if (auto value = normalized(graph, name)) return Scaled{*value, ""};
  const auto* product = graph.maker(name, "Mul", 2);
  if (product == nullptr) return std::nullopt;
  for (const std::size_t i : {0, 1}) {
    auto value = normalized(graph, product->inputs[i]);
    if (value && graph.constant(product->inputs[1 - i]) != nullptr)
      return Scaled{*value, product->inputs[1 - i]};
  }
  return std::nullopt;
}

OnnxNode layer_norm(const OnnxNode& last, const Scaled& found, const std::string& bias) {
  auto node = pattern_node(last, "LayerNormalization", {found.value.x, found.scale, bias});
  node.attributes.emplace_back("axes", found.value.axes);
  node.attributes.emplace_back("epsilon", static_cast<float>(found.value.eps));
  return node;
}

}  // namespace

std::optional<OnnxNode> find_layer_norm(const GraphView& graph, const OnnxNode& last) {
  if (last.op == "Add" && last.inputs.size() == 2)
    for (const std::size_t i : {0, 1})
      if (graph.constant(last.inputs[1 - i]) != nullptr)
        if (const auto found = scaled(graph, last.inputs[i]))
          return layer_norm(last, *found, last.inputs[1 - i]);
  // Without a bias the chain ends with the scale, and without a scale with the division.
  if (last.op != "Mul" && last.op != "Div") return std::nullopt;
  const auto found = scaled(graph, last.outputs[0]);
  return found ? std::optional(layer_norm(last, *found, "")) : std::nullopt;
}

}  // namespace fq::detail
