#include "fakequant/core/trace.h"

#include <utility>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/tape.h"

namespace fq {

PathScope::PathScope(std::string_view name) : previous_(context().path.size()) {
  // One string per thread grows and shrinks with the scopes, without an allocation per module call.
  std::string& path = context().path;
  if (name.empty()) return;
  if (!path.empty()) path += '.';
  path += name;
}
PathScope::~PathScope() { context().path.resize(previous_); }

const TraceValue& TraceGraph::input(const TraceNode& node, std::size_t i) const {
  FQ_CHECK(i < node.inputs.size() && node.inputs[i] >= 0, "trace", "{} '{}' has no input {}", node.op,
           node.path, i);
  return values[static_cast<std::size_t>(node.inputs[i])];
}

void Recorder::name(const Variable& variable, std::string name) {
  // Names are set before the run; `id` copies them when the variable is first read.
  names_[variable.node().get()] = std::move(name);
}

int Recorder::id(const Variable& variable) {
  if (!variable.defined()) return -1;
  const auto* node = variable.node().get();
  const auto [entry, added] = ids_.try_emplace(node, static_cast<int>(graph_.values.size()));
  if (added) {
    // Values are identified by the address of their node. Keeping the node alive prevents a reuse of the
    // address.
    alive_.push_back(variable.node());
    const auto name = names_.find(node);
    graph_.values.push_back({variable.shape(), -1, name == names_.end() ? "" : name->second, {}});
  }
  return entry->second;
}

void Recorder::mark_input(const Variable& variable) { graph_.inputs.push_back(id(variable)); }

void Recorder::record_op(std::string_view op, const std::vector<Variable>& inputs, const Variable& output,
                         Attributes attributes) {
  const int index = static_cast<int>(graph_.nodes.size());
  TraceNode node{module_path(), std::string(op), std::move(attributes), {}, -1};
  for (const auto& input : inputs) {
    const int value = id(input);
    node.inputs.push_back(value);
    if (value >= 0) graph_.values[static_cast<std::size_t>(value)].readers.push_back(index);
  }
  node.output = id(output);
  graph_.values[static_cast<std::size_t>(node.output)].producer = index;
  graph_.nodes.push_back(std::move(node));
}

TraceGraph Recorder::finish(const Variable& output) {
  graph_.output = id(output);
  return std::move(graph_);
}

}  // namespace fq
