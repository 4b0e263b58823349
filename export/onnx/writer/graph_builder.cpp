#include "fakequant/export/onnx/writer/graph_builder.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <list>
#include <map>
#include <set>
#include <string_view>
#include <utility>

namespace fq::detail {
namespace {

std::string unique(std::set<std::string>& taken, const std::string& wish) {
  std::string name = wish;
  for (int i = 1; !taken.insert(name).second; ++i) name = wish + "." + std::to_string(i);
  return name;
}

}  // namespace

std::string GraphBuilder::free_tensor_name(const std::string& wish) { return unique(tensors_, wish); }
std::string GraphBuilder::free_node_name(const std::string& wish) { return unique(nodes_, wish); }

std::string GraphBuilder::add(std::string op, const std::string& name, std::vector<std::string> inputs,
                              Attributes attributes, std::string output) {
  OnnxNode node{std::move(op), free_node_name(name), "", std::move(inputs), {}, std::move(attributes)};
  std::string result = free_tensor_name(output.empty() ? node.name + ".output" : output);
  node.outputs = {result};
  model.nodes.push_back(std::move(node));
  return result;
}

// A grid is written at several places (rounded early, rows of a matrix). Its constants are stored once.
std::string GraphBuilder::constant(const std::string& name, const Tensor& value) {
  const auto known = constants_.find(name);
  if (known != constants_.end() && bitwise_equal(model.initializers[known->second].value, value))
    return model.initializers[known->second].name;  // differs from `name` if that was not free
  std::string free = free_tensor_name(name);
  constants_.emplace(name, model.initializers.size());
  model.initializers.push_back({free, value, false});
  return free;
}

void GraphBuilder::needs_opset(int opset) { model.opset = std::max<std::int64_t>(model.opset, opset); }

namespace {

// A list keeps pointers to nodes valid while copies are inserted.
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

  /// Visits nodes from the end, so that a ReLU is split before the sums that it reads.
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

  // Whether ONNX Runtime has an integer kernel for the node: all inputs are dequantized codes.
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

  /// Gives each quantizing reader its own copy of the node, except the last reader.
  void split(const OnnxNode& node) {
    const std::vector<OnnxNode*> readers = readers_[node.outputs[0]];
    // The last reader keeps the node itself.
    std::size_t left = readers.size();
    for (OnnxNode* reader : readers)
      if (left > 1 && rounds(*reader)) {
        insert_copy(node, *reader);
        --left;
      }
  }

  void insert_copy(const OnnxNode& node, OnnxNode& reader) {
    const auto place = std::ranges::find(nodes_, &node, [](const OnnxNode& other) { return &other; });
    OnnxNode& copy = *nodes_.insert(place, node);
    copy.name = graph_.free_node_name(node.name + ".again");
    copy.outputs[0] = graph_.free_tensor_name(copy.name + ".output");
    std::ranges::replace(reader.inputs, node.outputs[0], copy.outputs[0]);
    // The maps follow the change, because nodes before this one are visited later.
    std::erase(readers_[node.outputs[0]], &reader);
    readers_[copy.outputs[0]] = {&reader};
    add_reader(copy);
  }

  GraphBuilder& graph_;
  std::list<OnnxNode> nodes_;  // addresses are stable
  std::map<std::string, OnnxNode*> makers_;
  std::map<std::string, std::vector<OnnxNode*>> readers_;
};

}  // namespace

void split_sums(GraphBuilder& graph) { Splitting(graph).run(); }

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
  [[nodiscard]] bool has_grid_type(const std::string& floats, DType codes, bool is_one) const {
    const auto grid = grids_.find(floats);
    if (grid == grids_.end() || grid->second.size() != 3) return false;
    const auto zero = constants_.find(grid->second[2]);
    return zero != constants_.end() && zero->second.dtype() == codes && (!is_one || zero->second.rank() == 0);
  }

  // ConvInteger takes uint8 activations with one zero point. A bias in int32 is on the grid of the sums.
  [[nodiscard]] bool is_of_codes(const OnnxNode& node) const {
    return node.op == "Conv" && node.inputs.size() == 3 && has_grid_type(node.inputs[0], DType::u8, true) &&
           has_grid_type(node.inputs[1], DType::i8, false) &&
           has_grid_type(node.inputs[2], DType::i32, false);
  }

  /// Whether only quantizers read the value, directly or through a ReLU.
  [[nodiscard]] bool is_rounded(const std::string& floats) const {
    const auto readers = readers_.find(floats);
    return readers != readers_.end() && std::ranges::all_of(readers->second, [&](const OnnxNode* reader) {
             // An output of the graph reads the floats.
             if (reader == nullptr) return false;
             return reader->op == "QuantizeLinear" ||
                    (reader->op == "Relu" && is_rounded(reader->outputs[0]));
           });
  }

  /// Returns the constant with a further axis of size 1 for each position axis.
  std::string channel_constant(const std::string& name, std::size_t positions) {
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
    // int32 sums with the bias: exact, as in evaluation here.
    const std::string all =
        graph_.add("Add", node.name + ".add_bias", {sums, channel_constant(bias[0], positions)});
    const std::string floats = graph_.add("Cast", node.name + ".sums", {all}, {{"to", kCastToFloat}});
    const std::string scale =
        graph_.add("Mul", node.name + ".scale", {x[1], channel_constant(w[1], positions)});
    graph_.model.nodes.push_back({"Mul", node.name, "", {floats, scale}, std::move(node.outputs), {}});
  }

  /// Removes unread nodes, and then unread constants.
  void drop_unread() {
    OnnxModel& model = graph_.model;
    const auto read = [&] {
      std::set<std::string> names;
      for (const auto& node : model.nodes) names.insert(node.inputs.begin(), node.inputs.end());
      for (const auto& output : model.outputs) names.insert(output.name);
      return names;
    };
    // First nodes, then the constants that only these nodes read.
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
  std::map<std::string, Grid> grids_;  // by the name of their floats
  std::map<std::string, Tensor> constants_;
  std::map<std::string, std::vector<const OnnxNode*>> readers_;  // null: output of the graph
};

}  // namespace

void write_integer_convolutions(GraphBuilder& graph) { IntegerConvolutions(graph).run(); }

namespace {

// A product reads a weight through its DequantizeLinear, whose constants are the codes and the zero points.
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

  /// Returns the floats of the weight. Copies the weight if another product shares a constant.
  std::string separate(OnnxNode weight, const std::string& reader) {
    bool copied = false;
    for (auto& input : weight.inputs)
      // The first reader keeps the constant.
      if (const auto codes = codes_.find(input); codes != codes_.end() && !read_.insert(input).second) {
        input = graph_.constant(input + ".of." + reader, codes->second);
        copied = true;
      }
    if (!copied) return weight.outputs[0];
    return graph_.add(weight.op, weight.name + ".of." + reader, weight.inputs, weight.attributes);
  }

  GraphBuilder& graph_;
  std::vector<OnnxNode> nodes_;
  std::map<std::string, Tensor> codes_;      // 8-bit constants
  std::map<std::string, OnnxNode> weights_;  // by the name of their floats
  std::set<std::string> read_;
};

}  // namespace

void separate_weights(GraphBuilder& graph) { Separating(graph).run(); }

}  // namespace fq::detail
