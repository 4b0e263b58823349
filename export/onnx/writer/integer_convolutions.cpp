#include "fakequant/export/onnx/writer/integer_convolutions.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace fq::detail {
namespace {

constexpr std::int64_t kCastToFloat = 1;  // TensorProto.FLOAT

class IntegerConvolutions {
 public:
  explicit IntegerConvolutions(GraphBuilder& graph)
      : graph_(graph), nodes_(std::exchange(graph.model.nodes, {})) {
    for (const auto& node : nodes_)
      if (node.op == "DequantizeLinear") grids_[node.outputs[0]] = node.inputs;
    for (const auto& constant : graph.model.initializers) constants_[constant.name] = constant.value;
    for (const auto& node : nodes_)
      for (const auto& input : node.inputs) readers_[input].push_back(&node);
    for (const auto& output : graph.model.outputs) readers_[output.name].push_back(nullptr);
  }

  void run() {
    bool some = false;
    for (auto& node : nodes_)
      if (is_of_codes(node) && !is_rounded(node.outputs[0])) {
        write(node);
        some = true;
      } else {
        graph_.model.nodes.push_back(std::move(node));
      }
    if (some) drop_unread();
  }

 private:
  [[nodiscard]] bool is_grid_of(const std::string& floats, DType codes, bool is_one) const {
    const auto grid = grids_.find(floats);
    if (grid == grids_.end() || grid->second.size() != 3) return false;
    const auto zero = constants_.find(grid->second[2]);
    return zero != constants_.end() && zero->second.dtype() == codes && (!is_one || zero->second.rank() == 0);
  }

  [[nodiscard]] bool is_of_codes(const OnnxNode& node) const {
    return node.op == "Conv" && node.inputs.size() == 3 && is_grid_of(node.inputs[0], DType::u8, true) &&
           is_grid_of(node.inputs[1], DType::i8, false) && is_grid_of(node.inputs[2], DType::i32, false);
  }

  /// Through a ReLU at most.
  [[nodiscard]] bool is_rounded(const std::string& floats) const {
    const auto readers = readers_.find(floats);
    return readers != readers_.end() && std::ranges::all_of(readers->second, [&](const OnnxNode* reader) {
             if (reader == nullptr) return false;
             return reader->op == "QuantizeLinear" ||
                    (reader->op == "Relu" && is_rounded(reader->outputs[0]));
           });
  }

  /// The constant with an axis of one behind channels for each of positions.
  std::string by_channels(const std::string& name, std::size_t positions) {
    const Tensor& values = constants_.at(name);
    if (values.numel() == 1) return name;
    Shape shape(positions + 1, 1);
    shape[0] = values.numel();
    return graph_.constant(name + ".of_channels", values.reshape(shape));
  }

  void write(OnnxNode& node) {
    const Grid &x = grids_.at(node.inputs[0]), &w = grids_.at(node.inputs[1]),
               &bias = grids_.at(node.inputs[2]);
    const std::size_t positions = constants_.at(w[0]).shape().size() - 2;
    const std::string sums =
        graph_.add("ConvInteger", node.name + ".codes", {x[0], w[0], x[2]}, std::move(node.attributes));
    const std::string all =
        graph_.add("Add", node.name + ".add_bias", {sums, by_channels(bias[0], positions)});
    const std::string floats = graph_.add("Cast", node.name + ".sums", {all}, {{"to", kCastToFloat}});
    const std::string scale = graph_.add("Mul", node.name + ".scale", {x[1], by_channels(w[1], positions)});
    graph_.model.nodes.push_back({"Mul", node.name, "", {floats, scale}, std::move(node.outputs), {}});
  }

  /// Floats that nobody reads any longer, and then constants.
  void drop_unread() {
    OnnxModel& model = graph_.model;
    const auto read = [&] {
      std::set<std::string> names;
      for (const auto& node : model.nodes) names.insert(node.inputs.begin(), node.inputs.end());
      for (const auto& output : model.outputs) names.insert(output.name);
      return names;
    };
    std::erase_if(model.nodes, [names = read()](const OnnxNode& node) {
      return node.op == "DequantizeLinear" && !names.contains(node.outputs[0]);
    });
    std::erase_if(model.initializers, [names = read()](const OnnxInitializer& constant) {
      return !names.contains(constant.name);
    });
  }

  using Grid = std::vector<std::string>;  // codes, scale, zero point

  GraphBuilder& graph_;
  std::vector<OnnxNode> nodes_;
  std::map<std::string, Grid> grids_;  // by their floats
  std::map<std::string, Tensor> constants_;
  std::map<std::string, std::vector<const OnnxNode*>> readers_;  // null: the graph gives it out
};

}  // namespace

void write_integer_convolutions(GraphBuilder& graph) { IntegerConvolutions(graph).run(); }

}  // namespace fq::detail
