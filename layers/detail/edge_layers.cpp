#include "fakequant/layers/detail/edge_layers.h"

#include <algorithm>

#include "fakequant/core/ops/operators.h"

namespace fq::detail {
namespace {

class EdgeWalk {
 public:
  explicit EdgeWalk(const TraceGraph& graph) : graph_(graph), marked_(graph.values.size(), false) {}

  std::set<std::string> first() {
    for (const int input : graph_.inputs) mark(input);
    std::set<std::string> found;
    for (const auto& node : graph_.nodes) {
      const auto inputs = activations(node);
      if (inputs.empty() || !std::ranges::all_of(inputs, [&](int value) { return is_marked(value); }))
        continue;
      has_weight(node) ? void(found.insert(node.path)) : mark(node.output);
    }
    return found;
  }

  std::set<std::string> last() {
    mark(graph_.output);
    std::set<std::string> found;
    for (auto node = graph_.nodes.rbegin(); node != graph_.nodes.rend(); ++node) {
      if (!is_marked(node->output)) continue;
      has_weight(*node) ? void(found.insert(node->path)) : mark_sources(*node);
    }
    return found;
  }

 private:
  static bool has_weight(const TraceNode& node) {
    const auto& op = traits(node.op);
    return (op.has_weight || op.is_recurrent) && !node.path.empty();
  }
  [[nodiscard]] bool is_marked(int value) const { return marked_[static_cast<std::size_t>(value)]; }
  void mark(int value) {
    if (value >= 0) marked_[static_cast<std::size_t>(value)] = true;
  }
  [[nodiscard]] int producer(int value) const {
    return graph_.values[static_cast<std::size_t>(value)].producer;
  }

  /// What a node reads besides parameters and constants.
  [[nodiscard]] std::vector<int> activations(const TraceNode& node) const {
    std::vector<int> out;
    for (const int value : node.inputs)
      if (value >= 0 && (producer(value) >= 0 || std::ranges::count(graph_.inputs, value) > 0))
        out.push_back(value);
    return out;
  }

  /// A concatenation gives out all that it reads; of the branches of an addition the longest ends last.
  void mark_sources(const TraceNode& node) {
    const auto inputs = activations(node);
    if (inputs.empty()) return;
    const auto latest = std::ranges::max_element(inputs, {}, [&](int value) { return producer(value); });
    for (const int value : inputs)
      if (traits(node.op).moves_values || value == *latest) mark(value);
  }

  const TraceGraph& graph_;
  std::vector<bool> marked_;
};

}  // namespace

std::vector<std::string> EdgeLayers::names_of(const std::string& path) const {
  std::vector<std::string> out;
  if (first.contains(path)) out.emplace_back("@first");
  if (last.contains(path)) out.emplace_back("@last");
  return out;
}

EdgeLayers edge_layers(const TraceGraph& graph) { return {EdgeWalk(graph).first(), EdgeWalk(graph).last()}; }

}  // namespace fq::detail
