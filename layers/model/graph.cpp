#include "fakequant/layers/model/graph.h"

#include <algorithm>
#include <set>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"

namespace fq {

Graph::Graph(std::vector<GraphNode> nodes) {
  FQ_CHECK(!nodes.empty(), "graph", "the model has no nodes: use at least one");
  std::vector<std::string> names{"input"};
  std::vector<std::size_t> last_reader{0};
  for (auto& node : nodes) {
    Step step;
    for (const auto& input : node.inputs) {
      const auto at = std::ranges::find(names, input);
      FQ_CHECK(at != names.end(), "graph", "node '{}' reads '{}', which is no earlier node{}", node.name,
               input, detail::did_you_mean(input, names));
      step.inputs.push_back(static_cast<std::size_t>(at - names.begin()));
      // Steps come in order, so the last assignment is the last reader.
      last_reader[step.inputs.back()] = steps_.size();
    }
    step.module = add_module(node.name, std::move(node.module));
    step.name = node.name;
    steps_.push_back(std::move(step));
    names.push_back(node.name);
    // A value without readers is dropped after the step that comes next; the network's output is the last
    // value and stays.
    last_reader.push_back(steps_.size());
  }
  check_paths();
  for (std::size_t value = 0; value + 1 < last_reader.size(); ++value)
    steps_[std::min(last_reader[value], steps_.size() - 1)].dead.push_back(value);
}

/// Rejects a node "a.b" next to a node "a" with a part "b": both would have the same path.
void Graph::check_paths() const {
  // Names without dots cannot collide with paths of parts.
  if (std::ranges::none_of(steps_, [](const Step& step) { return step.name.find('.') != std::string::npos; }))
    return;
  std::set<std::string> paths;
  for (const auto& [path, slot] : named_slots())
    FQ_CHECK(paths.insert(path).second, "graph",
             "'{}' is a node and a part of another node: use the node another name", path);
}

Variable Graph::forward(const Variable& x) {
  Values values(steps_.size() + 1);
  values[0] = x;
  std::size_t at = 0;
  for (const Block& block : blocks_) {
    run_steps(at, block.begin, values);
    run_block(block, values);
    at = block.end;
  }
  run_steps(at, steps_.size(), values);
  return values.back();
}

void Graph::run_steps(std::size_t begin, std::size_t end, Values& values) const {
  for (std::size_t i = begin; i < end; ++i) {
    const Step& step = steps_[i];
    std::vector<Variable> inputs;
    for (const auto input : step.inputs) inputs.push_back(values[input]);
    values[i + 1] = inputs.size() == 1 ? step.module(inputs[0]) : step.module(inputs);
    // Without this the list would keep the inputs alive while `dead` drops them.
    inputs.clear();
    for (const auto value : step.dead) values[value] = {};
  }
}

}  // namespace fq
