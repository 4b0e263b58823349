#include "fakequant/export/onnx/reader/patterns/graph_view.h"

#include <algorithm>
#include <cmath>

#include "fakequant/export/onnx/reader/op_import.h"

namespace fq::detail {

GraphView::GraphView(const std::vector<OnnxNode>& nodes, const Constants& constants) : constants_(constants) {
  // Chains consist of operators of ONNX's own domain only.
  for (const auto& node : nodes)
    if (node.domain.empty() && !node.outputs.empty()) makers_.emplace(node.outputs[0], &node);
}

const OnnxNode* GraphView::maker(const std::string& name, std::string_view op, std::size_t inputs) const {
  const auto found = makers_.find(name);
  const bool fits =
      found != makers_.end() && found->second->op == op && found->second->inputs.size() == inputs;
  return fits ? found->second : nullptr;
}

const Tensor* GraphView::constant(const std::string& name) const {
  const auto found = constants_.find(name);
  return found == constants_.end() ? nullptr : &found->second;
}

std::optional<double> GraphView::number(const std::string& name) const {
  const Tensor* value = constant(name);
  if (value == nullptr || value->numel() != 1 || bit_width(value->dtype()) < 8) return std::nullopt;
  return value->item();
}

bool GraphView::is_number(const std::string& name, double value) const {
  const auto given = number(name);
  // Files store the factors of formulas as f32, often computed in f32.
  return given && std::abs(*given - value) <= 1e-5 * std::abs(value);
}

const std::string* GraphView::other_operand(const OnnxNode& node, double value) const {
  if (node.inputs.size() != 2) return nullptr;
  if (is_number(node.inputs[0], value)) return &node.inputs[1];
  return is_number(node.inputs[1], value) ? &node.inputs[0] : nullptr;
}

std::optional<std::vector<std::int64_t>> GraphView::integers(const std::string& name) const {
  const Tensor* value = constant(name);
  if (value == nullptr || value->rank() > 1 || value->dtype() != DType::i64) return std::nullopt;
  return value->to_vector<std::int64_t>();
}

// The domain keeps the node apart from an operator of ONNX with the same name.
OnnxNode pattern_node(const OnnxNode& last, std::string op, std::vector<std::string> inputs) {
  return {std::move(op), last.name, std::string(kPatternDomain), std::move(inputs), {last.outputs[0]}, {}};
}

std::vector<OnnxNode> replace_patterns(const std::vector<OnnxNode>& nodes, const Constants& constants) {
  const GraphView graph(nodes, constants);
  std::vector<OnnxNode> out;
  out.reserve(nodes.size());
  for (const auto& node : nodes) {
    std::optional<OnnxNode> found;
    if (node.domain.empty() && !node.outputs.empty())
      // The first match is used. `graph` has the original nodes, so a chain may begin within another chain.
      for (const auto find : {find_gelu, find_gated, find_layer_norm, find_linear, find_padded_conv,
                              find_strided, find_without_nan})
        if (!found) found = find(graph, node);
    out.push_back(found ? std::move(*found) : node);
  }
  return out;
}

void add_reads(const OnnxNode& node, std::set<std::string>& names) {
  names.insert(node.inputs.begin(), node.inputs.end());
  for (const auto& branch : node.branches) {
    for (const auto& inner : branch.nodes) add_reads(inner, names);
    names.insert(branch.outputs.begin(), branch.outputs.end());
  }
}

std::vector<OnnxNode> live_nodes(std::vector<OnnxNode> nodes, const std::string& output) {
  // Nodes are in the order of execution, so one pass from the end meets all readers of a value before its
  // node.
  std::set<std::string> needed{output};
  std::vector<OnnxNode> out;
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
    if (std::ranges::none_of(node->outputs,
                             [&](const auto& name) { return !name.empty() && needed.contains(name); }))
      continue;
    add_reads(*node, needed);
    out.push_back(std::move(*node));
  }
  std::ranges::reverse(out);
  return out;
}

}  // namespace fq::detail
