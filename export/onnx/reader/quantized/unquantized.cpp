#include "fakequant/export/onnx/reader/quantized/unquantized.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <unordered_map>

#include "fakequant/core/numerics/detail/minifloat.h"
#include "fakequant/export/onnx/reader/fold.h"
#include "fakequant/export/onnx/reader/op_import.h"

namespace fq::detail {
namespace {

/// ONNX's own, ONNX Runtime's older ones of 16 bits, and those by which ModelOpt writes E4M3 for TensorRT.
bool is(const OnnxNode& node, std::string_view op) {
  if (node.domain.empty() || node.domain == "com.microsoft") return node.op == op;
  return node.domain == "trt" && node.op == "TRT_FP8" + std::string(op);
}

float nearest_code(float v, const Format& format) {
  if (format.is_integer())
    return std::clamp(std::nearbyint(v), static_cast<float>(format.integer().lower()),
                      static_cast<float>(format.integer().upper()));
  return Minifloat::of(format.floating()).round(v);
}

/// What codes may be, as stored ones.
struct Cut {
  int lowest, highest;
};

class Unquantizing {
 public:
  explicit Unquantizing(const OnnxModel& model) : model_(model) {
    for (const auto& value : model.initializers) constants_.emplace(value.name, value.value);
    for (const auto& node : model.nodes)
      if (!node.outputs.empty()) makers_.emplace(node.outputs[0], &node);
    for (const auto& node : model.nodes)
      for (const auto& input : node.inputs) readers_[input].push_back(&node);
  }

  Unquantized run() {
    out_.floats = model_;
    out_.floats.nodes.clear();
    for (const auto& node : model_.nodes) {
      if (is(node, "DequantizeLinear"))
        dequantize(node);
      else if (is(node, "QuantizeLinear"))
        check_read_by_codes(node);
      else if (!is_cut_of_codes(node))
        out_.floats.nodes.push_back(node);
    }
    for (auto& node : out_.floats.nodes)
      for (auto& input : node.inputs)
        if (const auto renamed = renamed_.find(input); renamed != renamed_.end()) input = renamed->second;
    return std::move(out_);
  }

 private:
  [[nodiscard]] const OnnxNode* maker(const std::string& name) const {
    const auto found = makers_.find(name);
    return found == makers_.end() ? nullptr : found->second;
  }

  /// Undefined for what is computed of the network's input, or of more than a constant.
  [[nodiscard]] Tensor constant(const std::string& name) const {
    if (const auto found = constants_.find(name); found != constants_.end()) return found->second;
    const OnnxNode* node = maker(name);
    for (int depth = 0; node != nullptr && node->op == "Identity" && depth < 64; ++depth) {
      if (const auto found = constants_.find(node->inputs.at(0)); found != constants_.end())
        return found->second;
      node = maker(node->inputs[0]);
    }
    if (node == nullptr || node->op != "Constant" || !node->domain.empty()) return {};
    FoldBudget budget{kLargestSize};
    return fold(NodeReader(*node), {}, budget).value_or(Tensor());
  }
  [[nodiscard]] FindConstant finder() const {
    return [this](const std::string& name) { return constant(name); };
  }

  /// The maximum and minimum of codes that a quantizer gave.
  [[nodiscard]] const OnnxNode* cut_quantizer(const OnnxNode& node) const {
    if (node.op != "Clip" || !node.domain.empty() || node.inputs.empty()) return nullptr;
    const OnnxNode* before = maker(node.inputs[0]);
    return before != nullptr && is(*before, "QuantizeLinear") ? before : nullptr;
  }
  [[nodiscard]] bool is_cut_of_codes(const OnnxNode& node) const { return cut_quantizer(node) != nullptr; }

  void check_read_by_codes(const OnnxNode& node) const {
    const NodeReader reader(node);
    reader.check(!node.outputs.empty(), "it has no output");
    const auto found = readers_.find(node.outputs[0]);
    reader.check(found != readers_.end(), "nothing reads its codes: a network's output is floats here");
    for (const OnnxNode* next : found->second)
      if (!is(*next, "DequantizeLinear") && !is_cut_of_codes(*next))
        reader.fail(
            "its codes go into '{}' ({}), where a DequantizeLinear is expected: write the file with pairs of "
            "both around operators of floats (QDQ)",
            next->name.substr(0, 100), operator_name(*next));
  }

  [[nodiscard]] DType type_of_codes(const OnnxNode& quantize) const {
    if (quantize.domain == "trt") return DType::f8_e4m3;
    if (quantize.inputs.size() > 2 && !quantize.inputs[2].empty())
      if (const Tensor zero = constant(quantize.inputs[2]); zero.defined()) return zero.dtype();
    const NodeReader reader(quantize);
    const auto number = static_cast<int>(reader.integer("output_dtype", 0, 0, 1 << 20));
    return number == 3 ? DType::i8 : DType::u8;
  }

  void dequantize(const OnnxNode& node) {
    const NodeReader reader(node);
    reader.check(node.inputs.size() >= 2 && !node.outputs.empty(), "it has {} inputs", node.inputs.size());
    if (const Tensor stored = constant(node.inputs[0]); stored.defined()) return take_constant(node, stored);
    const OnnxNode* before = maker(node.inputs[0]);
    const OnnxNode *clip = nullptr, *quantize = before;
    if (before != nullptr && is_cut_of_codes(*before)) {
      clip = before;
      quantize = cut_quantizer(*before);
    }
    if (quantize == nullptr || !is(*quantize, "QuantizeLinear"))
      reader.fail(
          "its codes come from '{}', not from a QuantizeLinear or a constant: write the file with "
          "pairs of both around operators of floats (QDQ)",
          before == nullptr ? node.inputs[0].substr(0, 100) : operator_name(*before));
    take_pair(node, *quantize, clip);
  }

  void take_pair(const OnnxNode& node, const OnnxNode& quantize, const OnnxNode* clip) {
    const NodeReader reader(node), first(quantize);
    first.check(!quantize.inputs.empty(), "it has no input");
    const DType type = type_of_codes(quantize);
    StoredGrid grid = stored_grid(first, finder(), type);
    const StoredGrid back = stored_grid(reader, finder(), type);
    reader.check(bitwise_equal(grid.scale, back.scale) && grid.zero_point == back.zero_point &&
                     (grid.axis == back.axis || grid.scale.rank() == 0),
                 "its scale or zero point is another than that of {}", grid.origin);
    first.check(grid.block == 0 && grid.scale.rank() <= 1,
                "its scales are of blocks: only weights have those here");
    if (const Tensor floats = constant(quantize.inputs[0]); floats.defined())
      return take_floats(node, quantize, floats, std::move(grid));
    std::string input = quantize.inputs[0];
    if (clip != nullptr) input = cut(*clip, std::move(input), grid);
    std::string output = node.outputs[0];
    if (!is_output(output)) output = renamed_[output] = fmt::format("grid:{}", renamed_.size());
    out_.floats.nodes.push_back({kGridMark,
                                 {},
                                 std::string(kPatternDomain),
                                 {std::move(input)},
                                 {std::move(output)},
                                 {{"index", static_cast<std::int64_t>(out_.grids.size())}}});
    out_.grids.push_back(std::move(grid));
  }

  /// A Clip of codes: bits that are not all of the type's, and a Relu where it begins with the code of 0.
  std::string cut(const OnnxNode& clip, std::string input, StoredGrid& grid) {
    const NodeReader reader(clip);
    reader.check(grid.format.is_integer(), "it clips codes of E4M3");
    const IntFormat whole = grid.format.integer();
    const auto bound = [&](std::size_t i, int fallback) {
      if (!reader.has_input(i)) return fallback;
      const Tensor value = constant(clip.inputs[i]);
      reader.check(value.defined() && value.numel() == 1 && bit_width(value.dtype()) >= 8,
                   "its bounds are not constants");
      return static_cast<int>(value.item()) - grid.zero_point;
    };
    const Cut codes{bound(1, whole.lower()), bound(2, whole.upper())};
    const bool relu = codes.lowest == 0 && !whole.is_unsigned;
    for (int bits = 2; bits <= whole.bits; ++bits)
      for (const bool narrow : {false, true}) {
        const IntFormat format{bits, whole.is_unsigned, narrow};
        if (whole.is_unsigned && narrow) continue;
        if (codes.highest != format.upper() || (!relu && codes.lowest != format.lower())) continue;
        grid.format = format;
        return relu ? relu_of(clip, std::move(input)) : input;
      }
    reader.check(codes.lowest == 0 && codes.highest == 0,
                 "it leaves the codes {} to {}, which no number of bits has", codes.lowest, codes.highest);
    return relu ? relu_of(clip, std::move(input)) : input;
  }

  std::string relu_of(const OnnxNode& clip, std::string input) {
    std::string name = clip.outputs.at(0) + ".relu";
    if (relus_.insert(name).second)
      out_.floats.nodes.push_back({"Relu", clip.name + ".relu", {}, {std::move(input)}, {name}, {}});
    return name;
  }

  /// In the place of the constant `from`, whose name tells the layer; under the node's own where that is
  /// taken, or no initializer.
  void add_values(const OnnxNode& node, const std::string& from, Tensor values) {
    auto& all = out_.floats.initializers;
    const auto found = std::ranges::find(all, from, &OnnxInitializer::name);
    if (found == all.end() || !taken_.insert(from).second || is_output(node.outputs[0])) {
      all.push_back({node.outputs[0], std::move(values)});
      return;
    }
    found->value = std::move(values);
    renamed_.emplace(node.outputs[0], from);
  }
  [[nodiscard]] bool is_output(const std::string& name) const {
    return std::ranges::find(model_.outputs, name, &OnnxValueInfo::name) != model_.outputs.end();
  }

  void take_constant(const OnnxNode& node, const Tensor& stored) {
    const NodeReader reader(node);
    if (stored.dtype() == DType::i32) return take_sums(node, stored);
    StoredGrid grid = stored_grid(reader, finder(), stored.dtype());
    const Tensor codes = codes_of(stored, grid);
    const Tensor values = values_of(reader, codes, grid);
    add_values(node, node.inputs[0], values);
    out_.weights.push_back({std::move(grid), codes, values});
  }

  /// A bias in steps of the sums: floats that are multiples of them.
  void take_sums(const OnnxNode& node, const Tensor& stored) {
    const NodeReader reader(node);
    StoredGrid grid;
    const Tensor scale = constant(node.inputs[1]);
    reader.check(scale.defined() && is_floating(scale.dtype()), "its scale is computed");
    if (reader.has_input(2)) {
      const Tensor zero = constant(node.inputs[2]);
      reader.check(zero.defined(), "its zero point is computed");
      for (const auto v : zero.to(DType::f64).to_vector<double>())
        reader.check(v == 0, "its zero point is {}: sums of 32 bits have none", v);
    }
    grid.scale = scale.numel() == 1 ? scale.to(DType::f32).reshape({}) : scale.to(DType::f32);
    if (scale.numel() > 1) grid.axis = static_cast<int>(reader.integer("axis", 1, -8, 7));
    if (stored.rank() == 1 && grid.axis > 0) grid.axis = 0;
    add_values(node, node.inputs[0], values_of(reader, stored.to(DType::f32), grid));
    out_.integer_bias = true;
  }

  /// Floats that the graph itself quantizes: they stay what they are, and train on.
  void take_floats(const OnnxNode& node, const OnnxNode& quantize, const Tensor& floats, StoredGrid grid) {
    const NodeReader reader(quantize);
    reader.check(is_floating(floats.dtype()), "it quantizes the constant {}", floats.describe());
    const Tensor values = floats.to(DType::f32);
    Tensor ones = Tensor::full(values.shape(), 1.0), codes = Tensor::empty(values.shape());
    const Tensor steps = values_of(reader, ones, grid);
    for (std::int64_t i = 0; i < codes.numel(); ++i)
      codes.mutable_data<float>()[i] =
          nearest_code(values.data<float>()[i] / steps.data<float>()[i], grid.format);
    add_values(node, quantize.inputs[0], values);
    out_.weights.push_back({std::move(grid), codes, values});
  }

  const OnnxModel& model_;
  std::unordered_map<std::string, Tensor> constants_;
  std::unordered_map<std::string, const OnnxNode*> makers_;
  std::unordered_map<std::string, std::vector<const OnnxNode*>> readers_;
  std::set<std::string> relus_, taken_;
  std::unordered_map<std::string, std::string>
      renamed_;  // of values: names that tell no layer, or another one
  Unquantized out_;
};

}  // namespace

bool has_grids(const OnnxModel& model) {
  return std::ranges::any_of(model.nodes, [](const auto& node) { return is(node, "DequantizeLinear"); });
}

Unquantized unquantized(const OnnxModel& model) { return Unquantizing(model).run(); }

}  // namespace fq::detail
