#pragma once

/// The nodes that an output needs, and patterns: chains of nodes that are one layer.

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "fakequant/export/onnx/model.h"

namespace fq::detail {

/// Fixed values by name.
using Constants = std::unordered_map<std::string, Tensor>;

/// Patterns go back from the last node of a chain. References, not copies.
class GraphView {
 public:
  GraphView(const std::vector<OnnxNode>& nodes, const Constants& constants);

  /// The node that gives `name`, when it is that operator with `inputs` inputs; else null.
  [[nodiscard]] const OnnxNode* maker(const std::string& name, std::string_view op, std::size_t inputs) const;
  /// Null when it is not fixed.
  [[nodiscard]] const Tensor* constant(const std::string& name) const;
  /// Whether `name` is a fixed single number within 1e-5 of `value`, relative.
  [[nodiscard]] bool is_number(const std::string& name, double value) const;
  [[nodiscard]] std::optional<double> number(const std::string& name) const;
  /// The other input of a node of two when one of them is that number; null when neither is.
  [[nodiscard]] const std::string* beside(const OnnxNode& node, double value) const;
  [[nodiscard]] std::optional<std::vector<std::int64_t>> integers(const std::string& name) const;

 private:
  const Constants& constants_;
  std::unordered_map<std::string, const OnnxNode*> makers_;
};

/// A node in the place of `last`, the end of a chain: same name and output.
[[nodiscard]] OnnxNode in_place_of(const OnnxNode& last, std::string op, std::vector<std::string> inputs);

/// Each gives the node that stands for the chain that ends with `last`, or none.
[[nodiscard]] std::optional<OnnxNode> find_gelu(const GraphView& graph, const OnnxNode& last);
[[nodiscard]] std::optional<OnnxNode> find_gated(const GraphView& graph, const OnnxNode& last);
[[nodiscard]] std::optional<OnnxNode> find_layer_norm(const GraphView& graph, const OnnxNode& last);
/// What stands behind a softmax for rows that see no key: 0 where it is NaN, else itself.
[[nodiscard]] std::optional<OnnxNode> find_without_nan(const GraphView& graph, const OnnxNode& last);
[[nodiscard]] std::optional<OnnxNode> find_linear(const GraphView& graph, const OnnxNode& last);
/// PyTorch's as_strided where it changes the shape alone.
[[nodiscard]] std::optional<OnnxNode> find_strided(const GraphView& graph, const OnnxNode& last);
[[nodiscard]] std::optional<OnnxNode> find_padded_conv(const GraphView& graph, const OnnxNode& last);

/// The nodes with chains replaced; what is left of them is no longer read.
[[nodiscard]] std::vector<OnnxNode> with_patterns(const std::vector<OnnxNode>& nodes,
                                                  const Constants& constants);

/// Adds all names that a node and its branches read.
void add_reads(const OnnxNode& node, std::set<std::string>& names);
/// Returns the nodes that the output needs, in their order.
[[nodiscard]] std::vector<OnnxNode> live_nodes(std::vector<OnnxNode> nodes, const std::string& output);

}  // namespace fq::detail
