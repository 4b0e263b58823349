#include "fakequant/export/onnx/reader/quantized/unquantized.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "fakequant/core/quantized.h"
#include "fakequant/export/onnx/reader/op_import.h"
#include "fakequant/export/onnx/reader/quantized/pair_graph.h"
#include "fakequant/export/onnx/reader/quantized/stored_grid.h"

namespace fq::detail {
namespace {

class Unquantizing {
 public:
  explicit Unquantizing(const OnnxModel& model) : model_(model), graph_(model) {}

  Unquantized run() {
    out_.floats = model_;
    out_.floats.nodes.clear();
    for (const auto& node : model_.nodes) {
      if (is_pair_operator(node, "DequantizeLinear"))
        dequantize(node);
      else if (is_pair_operator(node, "QuantizeLinear"))
        graph_.check_read_by_codes(node);
      else if (graph_.clipped_quantizer(node) == nullptr)
        out_.floats.nodes.push_back(node);
    }
    for (auto& node : out_.floats.nodes)
      for (auto& input : node.inputs)
        if (const auto renamed = renamed_.find(input); renamed != renamed_.end()) input = renamed->second;
    return std::move(out_);
  }

 private:
  void dequantize(const OnnxNode& node) {
    const NodeReader reader(node);
    reader.check(node.inputs.size() >= 2 && !node.outputs.empty(), "it has {} inputs", node.inputs.size());
    if (const Tensor stored = graph_.constant(node.inputs[0]); stored.defined())
      return take_constant(node, stored);
    const OnnxNode *before = graph_.maker(node.inputs[0]), *clip = nullptr, *quantize = before;
    if (before != nullptr && graph_.clipped_quantizer(*before) != nullptr) {
      clip = before;
      quantize = graph_.clipped_quantizer(*before);
    }
    if (quantize == nullptr || !is_pair_operator(*quantize, "QuantizeLinear"))
      reader.fail(
          "its codes come from '{}', not from a QuantizeLinear or a constant: write the file with "
          "pairs of both around operators of floats (QDQ)",
          before == nullptr ? node.inputs[0].substr(0, 100) : operator_name(*before));
    take_pair(node, *quantize, clip);
  }

  void take_pair(const OnnxNode& node, const OnnxNode& quantize, const OnnxNode* clip) {
    const NodeReader reader(node), first(quantize);
    first.check(!quantize.inputs.empty(), "it has no input");
    const DType type = graph_.type_of_codes(quantize);
    StoredGrid grid = stored_grid(first, graph_.finder(), type);
    const StoredGrid back = stored_grid(reader, graph_.finder(), type);
    reader.check(bitwise_equal(grid.scale, back.scale) && grid.zero_point == back.zero_point &&
                     (grid.axis == back.axis || grid.scale.rank() == 0),
                 "its scale or zero point differs from {}", grid.origin);
    first.check(grid.block == 0 && grid.scale.rank() <= 1,
                "it has a scale per block: only weights may have blocks");
    if (const Tensor floats = graph_.constant(quantize.inputs[0]); floats.defined())
      return take_floats(node, quantize, floats, std::move(grid));
    std::string input = quantize.inputs[0];
    if (clip != nullptr) input = cut(*clip, std::move(input), grid);
    std::string output = node.outputs[0];
    // A generated name, because the old name may contain the path of another module. An output keeps its
    // name.
    if (!graph_.is_output(output)) output = renamed_[output] = fmt::format("grid:{}", renamed_.size());
    OnnxNode mark{kGridMark,
                  {},
                  std::string(kPatternDomain),
                  {std::move(input)},
                  {std::move(output)},
                  {{"index", static_cast<std::int64_t>(out_.grids.size())}, {"origin", grid.origin}}};
    if (grid.scale.rank() == 1) {
      mark.attributes.emplace_back("axis", std::int64_t{grid.axis});
      mark.attributes.emplace_back("scales", grid.scale.numel());
    }
    out_.floats.nodes.push_back(std::move(mark));
    out_.grids.push_back(std::move(grid));
  }

  std::string cut(const OnnxNode& clip, std::string input, StoredGrid& grid) {
    const ClippedCodes left = clipped_codes(clip, graph_.finder(), grid);
    grid.format = left.format;
    return left.relu ? add_relu(clip, std::move(input)) : input;
  }

  std::string add_relu(const OnnxNode& clip, std::string input) {
    std::string name = clip.outputs.at(0) + ".relu";
    // Several DequantizeLinear may read one Clip.
    if (relus_.insert(name).second)
      out_.floats.nodes.push_back({"Relu", clip.name + ".relu", {}, {std::move(input)}, {name}, {}});
    return name;
  }

  /// Replaces the constant `from`, whose name identifies the layer. Uses the node's own name if `from` was
  /// already replaced or is not an initializer.
  void add_values(const OnnxNode& node, const std::string& from, Tensor values) {
    auto& all = out_.floats.initializers;
    const auto found = std::ranges::find(all, from, &OnnxInitializer::name);
    if (found == all.end() || !taken_.insert(from).second || graph_.is_output(node.outputs[0])) {
      all.push_back({node.outputs[0], std::move(values)});
      return;
    }
    found->value = std::move(values);
    renamed_.emplace(node.outputs[0], from);
  }

  void take_constant(const OnnxNode& node, const Tensor& stored) {
    const NodeReader reader(node);
    // int32 codes are biases, in steps of fl(s_x * s_w).
    if (stored.dtype() == DType::i32) return take_sums(node, stored);
    StoredGrid grid = stored_grid(reader, graph_.finder(), stored.dtype());
    const Tensor codes = subtract_zero_point(stored, grid);
    const Tensor values = dequantize_codes(reader, codes, grid);
    add_values(node, node.inputs[0], values);
    out_.weights.push_back({std::move(grid), codes, values});
  }

  /// Converts a bias in steps of the sums to floats.
  void take_sums(const OnnxNode& node, const Tensor& stored) {
    const NodeReader reader(node);
    StoredGrid grid;
    const Tensor scale = graph_.constant(node.inputs[1]);
    reader.check(scale.defined() && is_floating(scale.dtype()), "its scale is computed");
    if (reader.has_input(2)) {
      const Tensor zero = graph_.constant(node.inputs[2]);
      reader.check(zero.defined(), "its zero point is computed");
      reader.check(zero.numel() == scale.numel(), "its zero point is {}, its scale {}: both need one shape",
                   zero.describe(), scale.describe());
      for (const auto v : zero.to(DType::f64).to_vector<double>())
        reader.check(v == 0, "its zero point is {}: sums of 32 bits have none", v);
    }
    grid.scale = scale.numel() == 1 ? scale.to(DType::f32).reshape({}) : scale.to(DType::f32);
    if (scale.numel() > 1) grid.axis = static_cast<int>(reader.integer("axis", 1, -8, 7));
    // ONNX's default axis is 1, which a bias of rank 1 does not have.
    if (stored.rank() == 1 && grid.axis > 0) grid.axis = 0;
    add_values(node, node.inputs[0], dequantize_codes(reader, stored.to(DType::f32), grid));
    out_.integer_bias = true;
  }

  /// Keeps floats that the graph itself quantizes, so that they can be trained further.
  void take_floats(const OnnxNode& node, const OnnxNode& quantize, const Tensor& floats, StoredGrid grid) {
    const NodeReader reader(quantize);
    reader.check(is_floating(floats.dtype()), "it quantizes the constant {}", floats.describe());
    const Tensor values = floats.to(DType::f32);
    const auto by = scale_granularity(reader, values, grid);
    const Shape ranges = by.scale_shape(values.shape());
    // The codes must have exactly the scales of the file, so the scales of this placeholder range are
    // replaced.
    Grid stored = Grid::from_amax(grid.format, by, Tensor::full(ranges, 1.0));
    stored.scale =
        grid.scale.rank() == 0 ? Tensor::full(ranges, grid.scale.item()) : grid.scale.reshape(ranges);
    const Tensor codes = code_values(fq::quantize(values, stored, false));
    add_values(node, quantize.inputs[0], values);
    out_.weights.push_back({std::move(grid), codes, values});
  }

  const OnnxModel& model_;
  PairGraph graph_;
  std::set<std::string> relus_, taken_;
  std::unordered_map<std::string, std::string>
      renamed_;  // new names of values; the old names identify no layer or another one
  Unquantized out_;
};

}  // namespace

bool has_grids(const OnnxModel& model) {
  return std::ranges::any_of(model.nodes, [](const auto& node) {
    return is_pair_operator(node, "DequantizeLinear") || node.op == "ConvInteger";
  });
}

Unquantized unquantized(const OnnxModel& model) { return Unquantizing(model).run(); }

}  // namespace fq::detail
