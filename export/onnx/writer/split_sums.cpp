#include "fakequant/export/onnx/writer/split_sums.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <list>
#include <map>
#include <string_view>

namespace fq::detail {
namespace {

class Splitting {
 public:
  explicit Splitting(GraphBuilder& graph)
      : graph_(graph),
        nodes_(std::make_move_iterator(graph.model.nodes.begin()),
               std::make_move_iterator(graph.model.nodes.end())) {
    for (auto& node : nodes_) {
      makers_[node.outputs[0]] = &node;
      add_reader(node);
    }
  }

  /// From the end, so that a ReLU is split before the sums that it reads.
  void run() {
    for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node)
      if (node->op == "Relu" || sums_codes(*node)) split(*node);
    graph_.model.nodes.assign(std::make_move_iterator(nodes_.begin()), std::make_move_iterator(nodes_.end()));
  }

 private:
  void add_reader(OnnxNode& node) {
    for (const auto& input : node.inputs)
      if (auto& readers = readers_[input]; std::ranges::find(readers, &node) == readers.end())
        readers.push_back(&node);
  }

  [[nodiscard]] bool sums_codes(const OnnxNode& node) const {
    constexpr std::array<std::string_view, 5> ops{"Conv", "Gemm", "Add", "AveragePool", "GlobalAveragePool"};
    if (std::ranges::find(ops, node.op) == ops.end()) return false;
    return std::ranges::all_of(node.inputs, [&](const std::string& input) {
      const auto maker = makers_.find(input);
      return maker != makers_.end() && maker->second->op == "DequantizeLinear";
    });
  }

  [[nodiscard]] bool rounds(const OnnxNode& reader) const {
    if (reader.op == "QuantizeLinear") return true;
    const auto next = readers_.find(reader.outputs[0]);
    return reader.op == "Relu" && next != readers_.end() && next->second.size() == 1 &&
           rounds(*next->second[0]);
  }

  /// Readers that round get a node of their own, but for the last reader of all.
  void split(const OnnxNode& node) {
    const std::vector<OnnxNode*> readers = readers_[node.outputs[0]];
    std::size_t left = readers.size();
    for (OnnxNode* reader : readers)
      if (left > 1 && rounds(*reader)) {
        copy_for(node, *reader);
        --left;
      }
  }

  void copy_for(const OnnxNode& node, OnnxNode& reader) {
    const auto place = std::ranges::find(nodes_, &node, [](const OnnxNode& other) { return &other; });
    OnnxNode& copy = *nodes_.insert(place, node);
    copy.name = graph_.free_node_name(node.name + ".again");
    copy.outputs[0] = graph_.free_tensor_name(copy.name + ".output");
    std::ranges::replace(reader.inputs, node.outputs[0], copy.outputs[0]);
    std::erase(readers_[node.outputs[0]], &reader);
    readers_[copy.outputs[0]] = {&reader};
    add_reader(copy);
  }

  GraphBuilder& graph_;
  std::list<OnnxNode> nodes_;  // addresses stay
  std::map<std::string, OnnxNode*> makers_;
  std::map<std::string, std::vector<OnnxNode*>> readers_;
};

}  // namespace

void split_sums(GraphBuilder& graph) { Splitting(graph).run(); }

}  // namespace fq::detail
