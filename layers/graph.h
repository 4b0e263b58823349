#pragma once

/// Graph: a network as a list of named nodes, the form of model files.

#include <nlohmann/json_fwd.hpp>

#include "fakequant/layers/module.h"

namespace fq {

/// One node of a model: `{"name": "conv1", "type": "conv2d", "options": {..}, "inputs": ["input"]}`.
struct GraphNode {
  std::string name;
  std::shared_ptr<Module> module;
  std::vector<std::string> inputs;  ///< names of earlier nodes, or "input"
};

/// Runs its nodes in order; the last one's value is the output. Values are dropped after their last reader.
class Graph : public Module {
 public:
  /// Throws ArgumentError for two nodes of one name, an unknown input, or no node at all.
  explicit Graph(std::vector<GraphNode> nodes);
  [[nodiscard]] std::string type() const override { return "graph"; }

 protected:
  Variable forward(const Variable& x) override;
  using Module::forward;

 private:
  struct Step {
    Child<Module> module;
    std::vector<std::size_t> inputs;  // 0 is the network's input, i + 1 the value of step i
    std::vector<std::size_t> dead;    // values nobody reads after this step
  };
  std::vector<Step> steps_;
};

}  // namespace fq
