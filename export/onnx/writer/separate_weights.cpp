#include "fakequant/export/onnx/writer/separate_weights.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>
#include <utility>

namespace fq::detail {
namespace {

class Separating {
 public:
  explicit Separating(GraphBuilder& graph) : graph_(graph), nodes_(std::exchange(graph.model.nodes, {})) {
    for (const auto& constant : graph.model.initializers)
      if (constant.value.dtype() == DType::i8) codes_[constant.name] = constant.value;
    for (const auto& node : nodes_)
      if (node.op == "DequantizeLinear" && codes_.contains(node.inputs[0])) weights_[node.outputs[0]] = node;
  }

  void run() {
    for (auto& node : nodes_) {
      if (is_weighted(node))
        for (auto& input : node.inputs)
          if (const auto weight = weights_.find(input); weight != weights_.end())
            input = separate(weight->second, node.name);
      graph_.model.nodes.push_back(std::move(node));
    }
  }

 private:
  static bool is_weighted(const OnnxNode& node) {
    constexpr std::array<std::string_view, 4> ops{"Conv", "ConvTranspose", "Gemm", "MatMul"};
    return std::ranges::find(ops, node.op) != ops.end();
  }

  /// The floats of the weight, or of a copy where another product has some of its constants.
  std::string separate(OnnxNode weight, const std::string& reader) {
    bool copied = false;
    for (auto& input : weight.inputs)
      if (const auto codes = codes_.find(input); codes != codes_.end() && !read_.insert(input).second) {
        input = graph_.constant(input + ".of." + reader, codes->second);
        copied = true;
      }
    if (!copied) return weight.outputs[0];
    return graph_.add(weight.op, weight.name + ".of." + reader, weight.inputs, weight.attributes);
  }

  GraphBuilder& graph_;
  std::vector<OnnxNode> nodes_;
  std::map<std::string, Tensor> codes_;      // constants of bytes
  std::map<std::string, OnnxNode> weights_;  // by their floats
  std::set<std::string> read_;
};

}  // namespace

void separate_weights(GraphBuilder& graph) { Separating(graph).run(); }

}  // namespace fq::detail
