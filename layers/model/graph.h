#pragma once

/// Graph: a network as a list of named nodes, the form of model files (layers/model/model_file.h) and
/// imported networks.
///
///     Graph model({{"fc1", std::make_shared<Linear>(784, 64), {"input"}},
///                  {"relu", make_relu(), {"fc1"}},
///                  {"sum", std::make_shared<Add>(), {"relu", "fc1"}},
///                  {"fc2", std::make_shared<Linear>(64, 10), {"sum"}}});

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "fakequant/layers/modules/module.h"

namespace fq {

/// One node of a model, in a file `{"name": "conv1", "type": "conv2d", "options": {..}, "inputs":
/// ["input"]}`. A module with several inputs receives them in this order.
struct GraphNode {
  std::string name;
  std::shared_ptr<Module> module;
  std::vector<std::string> inputs;  ///< names of earlier nodes, or "input"
};

/// Runs its nodes in order. The value of the last node is the output. Each value is freed after its last
/// reader, to limit memory. Nodes are children under their names: their parameters are "fc1.weight", and
/// `replace` changes a node.
class Graph : public Module {
 public:
  /// Names may be paths, "layer1.0.conv1". Throws ArgumentError for two nodes with one name, a name that is
  /// also the path of a part of another node, an input that is not an earlier node, a name with '/', or an
  /// empty list.
  explicit Graph(std::vector<GraphNode> nodes);
  [[nodiscard]] std::string type() const override { return "graph"; }
  /// Turns consecutive steps with the same block into a checkpoint. `step_block` returns the block of a
  /// step's name, or an empty text. Returns the names of the steps in blocks. Users call it through
  /// set_checkpointing (layers/modules/checkpoint.h). Throws as that function.
  std::vector<std::string> set_blocks(const std::function<std::string(const std::string&)>& step_block);

 protected:
  Variable forward(const Variable& x) override;
  using Module::forward;

 private:
  struct Step {
    Child<Module> module;
    std::vector<std::size_t> inputs;  // 0 is the network's input, i + 1 the value of step i
    std::vector<std::size_t> dead;    // values that no later step reads
    std::string name;
  };
  using Values = std::vector<Variable>;
  /// Steps [begin, end), and the earlier values that they read.
  struct Block {
    std::string name;
    std::size_t begin, end;
    std::vector<std::size_t> reads;
  };
  void check_paths() const;
  void find_reads(Block& block) const;
  void run_steps(std::size_t begin, std::size_t end, Values& values) const;
  void run_block(const Block& block, Values& values) const;
  [[nodiscard]] std::vector<Variable> block_parameters(const Block& block) const;

  std::vector<Step> steps_;
  std::vector<Block> blocks_;  // in order
};

}  // namespace fq
