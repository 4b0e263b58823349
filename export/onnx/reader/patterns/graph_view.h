#pragma once

/// View of a graph to find patterns: chains of nodes that form one layer.

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "fakequant/export/onnx/model.h"

namespace fq::detail {

/// Constants by name.
using Constants = std::unordered_map<std::string, Tensor>;

/// Looks up nodes and constants by name. Patterns are matched from their last node backwards. Holds
/// references.
class GraphView {
 public:
  GraphView(const std::vector<OnnxNode>& nodes, const Constants& constants);

  /// Returns the node that computes `name` if it is the operator `op` with `inputs` inputs, else null.
  [[nodiscard]] const OnnxNode* maker(const std::string& name, std::string_view op, std::size_t inputs) const;
  /// Returns null if the value is not constant.
  [[nodiscard]] const Tensor* constant(const std::string& name) const;
  /// Whether `name` is a constant single number within 1e-5 of `value` (relative).
  [[nodiscard]] bool is_number(const std::string& name, double value) const;
  [[nodiscard]] std::optional<double> number(const std::string& name) const;
  /// Returns the other input of a node with two inputs if one of them is the number `value`, else null.
  [[nodiscard]] const std::string* other_operand(const OnnxNode& node, double value) const;
  [[nodiscard]] std::optional<std::vector<std::int64_t>> integers(const std::string& name) const;

 private:
  const Constants& constants_;
  std::unordered_map<std::string, const OnnxNode*> makers_;
};

/// Returns a node that replaces `last`, the end of a chain: same name and output.
[[nodiscard]] OnnxNode pattern_node(const OnnxNode& last, std::string op, std::vector<std::string> inputs);

/// Each function returns the node that replaces the chain ending at `last`, or no value.
[[nodiscard]] std::optional<OnnxNode> find_gelu(const GraphView& graph, const OnnxNode& last);
[[nodiscard]] std::optional<OnnxNode> find_gated(const GraphView& graph, const OnnxNode& last);
[[nodiscard]] std::optional<OnnxNode> find_layer_norm(const GraphView& graph, const OnnxNode& last);
/// Finds the replacement of NaN by 0 after a softmax, for rows that see no key.
[[nodiscard]] std::optional<OnnxNode> find_without_nan(const GraphView& graph, const OnnxNode& last);
[[nodiscard]] std::optional<OnnxNode> find_linear(const GraphView& graph, const OnnxNode& last);
/// Finds PyTorch's as_strided that only changes the shape.
[[nodiscard]] std::optional<OnnxNode> find_strided(const GraphView& graph, const OnnxNode& last);
[[nodiscard]] std::optional<OnnxNode> find_padded_conv(const GraphView& graph, const OnnxNode& last);

/// Replaces chains by layers. Nothing reads the remaining nodes of a chain.
[[nodiscard]] std::vector<OnnxNode> replace_patterns(const std::vector<OnnxNode>& nodes,
                                                     const Constants& constants);

/// Adds all names that a node and its branches read.
void add_reads(const OnnxNode& node, std::set<std::string>& names);
/// Returns the nodes that the output needs, in order.
[[nodiscard]] std::vector<OnnxNode> live_nodes(std::vector<OnnxNode> nodes, const std::string& output);

}  // namespace fq::detail
