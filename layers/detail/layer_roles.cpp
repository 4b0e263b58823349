#include "fakequant/layers/detail/layer_roles.h"

#include <algorithm>
#include <vector>

#include "fakequant/core/ops/operators.h"
#include "fakequant/layers/model/float_operators.h"

namespace fq::detail {
namespace {

// Walks the trace once. A value is marked if only operators without weights lie between it and the edge.
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
      // A layer with a weight ends the walk; others pass the mark on.
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

  /// Returns the inputs of a node except parameters and constants.
  [[nodiscard]] std::vector<int> activations(const TraceNode& node) const {
    std::vector<int> out;
    for (const int value : node.inputs)
      if (value >= 0 && (producer(value) >= 0 || std::ranges::count(graph_.inputs, value) > 0))
        out.push_back(value);
    return out;
  }

  /// Marks the inputs that lead to the output. A concatenation outputs all of its inputs. For an addition,
  /// the input that is computed last belongs to the longest branch.
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

// True if engine_form has a reason for floats and no form on codes.
bool is_always_in_floats(const std::string& op) {
  const EngineForm* form = engine_form(op);
  return form != nullptr && form->exact.empty() && !form->reason.empty();
}

bool is_addition(const TraceNode& node) { return node.op == "add" && !node.path.empty(); }

bool is_convolution(const TraceNode& node) {
  return traits(node.op).has_weight && node.op.starts_with("conv");
}

/// Walks from the output back to the inputs, so that the readers of a value are known before its producer.
class ResidualSums {
 public:
  explicit ResidualSums(const TraceGraph& graph)
      : graph_(graph), read_(graph.values.size(), false), read_as_codes_(read_), of_convolution_(read_) {
    find_convolutions();
  }

  std::set<std::string> run() {
    // The network's output is excluded: its sum is the result and has no reader that could qualify it.
    if (graph_.output >= 0) read_as_codes_[static_cast<std::size_t>(graph_.output)] = true;
    std::set<std::string> found, others;
    for (auto at = graph_.nodes.rbegin(); at != graph_.nodes.rend(); ++at) {
      const TraceNode& node = *at;
      // Backwards, so all readers of the output have been visited.
      const auto output = static_cast<std::size_t>(node.output);
      const bool in_floats =
          read_[output] && !read_as_codes_[output] && !(is_addition(node) && reads_convolution(node));
      if (is_addition(node)) (in_floats ? found : others).insert(node.path);
      const bool passes = is_addition(node) || traits(node.op).moves_values;
      mark(node, is_always_in_floats(node.op) || (passes && in_floats));
    }
    // A module that runs several times must qualify each time.
    for (const auto& path : others) found.erase(path);
    return found;
  }

 private:
  [[nodiscard]] bool reads_convolution(const TraceNode& node) const {
    return std::ranges::any_of(node.inputs, [this](int value) {
      return value >= 0 && of_convolution_[static_cast<std::size_t>(value)];
    });
  }

  /// Marks values that come from a convolution, also through batch norms and activations on codes. Products,
  /// additions and operators in floats start a new value.
  void find_convolutions() {
    for (const auto& node : graph_.nodes) {
      const bool folds = node.op == "batch_norm";
      const bool starts_new_value =
          traits(node.op).is_product || is_addition(node) || (!folds && is_always_in_floats(node.op));
      of_convolution_[static_cast<std::size_t>(node.output)] =
          is_convolution(node) || (!starts_new_value && reads_convolution(node));
    }
  }

  void mark(const TraceNode& node, bool in_floats) {
    for (const int input : node.inputs) {
      if (input < 0) continue;
      read_[static_cast<std::size_t>(input)] = true;
      if (!in_floats) read_as_codes_[static_cast<std::size_t>(input)] = true;
    }
  }

  const TraceGraph& graph_;
  std::vector<bool> read_, read_as_codes_;
  std::vector<bool> of_convolution_;  // values of a convolution, see find_convolutions
};

}  // namespace

std::vector<std::string> EdgeLayers::role_names(const std::string& path) const {
  std::vector<std::string> out;
  if (first.contains(path)) out.emplace_back("@first");
  if (last.contains(path)) out.emplace_back("@last");
  return out;
}

EdgeLayers edge_layers(const TraceGraph& graph) { return {EdgeWalk(graph).first(), EdgeWalk(graph).last()}; }

std::set<std::string> residual_sums(const TraceGraph& graph) { return ResidualSums(graph).run(); }

}  // namespace fq::detail
