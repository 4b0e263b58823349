#include <algorithm>
#include <set>

#include "fakequant/core/numerics/detail/formulas.h"
#include "fakequant/export/onnx/detail/element_type.h"
#include "fakequant/export/onnx/reader/quantized/pair_graph.h"

namespace fq::detail {
namespace {

bool is_op(const OnnxNode* node, std::string_view op, std::size_t inputs) {
  return node != nullptr && node->op == op && node->domain.empty() && node->inputs.size() == inputs &&
         node->outputs.size() == 1;
}

bool casts_to_f32(const OnnxNode& cast) {
  return NodeReader(cast).integer("to", 0, 0, kLargestSize) == onnx_type(DType::f32);
}

/// The nodes of one convolution, the last first.
struct Chain {
  const OnnxNode *scaled, *cast, *add, *conv, *scale, *quantize;
};

class Pairing {
 public:
  explicit Pairing(const OnnxModel& model) : graph_(model), out_(model) {}

  OnnxModel run() {
    std::vector<OnnxNode> nodes;
    std::set<std::string> gone;
    for (const auto& node : out_.nodes) {
      const Chain chain = find_chain(node);
      if (chain.quantize == nullptr || !pair(chain, nodes)) {
        nodes.push_back(node);
        continue;
      }
      // The nodes of the chain come before its last node and are in `nodes` already.
      for (const OnnxNode* part : {chain.cast, chain.add, chain.conv, chain.scale})
        gone.insert(part->outputs[0]);
    }
    std::erase_if(nodes,
                  [&](const OnnxNode& n) { return !n.outputs.empty() && gone.contains(n.outputs[0]); });
    out_.nodes = std::move(nodes);
    return std::move(out_);
  }

 private:
  [[nodiscard]] Chain find_chain(const OnnxNode& node) const {
    const auto before = [&](const OnnxNode* of, std::size_t i) {
      return of == nullptr || of->inputs.size() <= i ? nullptr : graph_.maker(of->inputs[i]);
    };
    // Follows the inputs backwards from the last Mul. `chain.quantize` is null unless all nodes fit.
    const Chain none{};
    if (!is_op(&node, "Mul", 2)) return none;
    Chain c{&node, before(&node, 0), nullptr, nullptr, before(&node, 1), nullptr};
    c.add = before(c.cast, 0);
    c.conv = before(c.add, 0);
    const bool fits = is_op(c.cast, "Cast", 1) && casts_to_f32(*c.cast) && is_op(c.add, "Add", 2) &&
                      is_op(c.conv, "ConvInteger", 3) && is_op(c.scale, "Mul", 2);
    if (!fits) return none;
    const OnnxNode* codes = before(c.conv, 0);
    if (codes != nullptr && graph_.clipped_quantizer(*codes) != nullptr)
      codes = graph_.clipped_quantizer(*codes);
    // The convolution must read the codes with the scale and zero point of their quantizer.
    if (is_op(codes, "QuantizeLinear", 3) && codes->inputs[1] == c.scale->inputs[0] &&
        codes->inputs[2] == c.conv->inputs[2])
      c.quantize = codes;
    return c;
  }

  std::string constant(const std::string& name, Tensor value) {
    out_.initializers.push_back({name, std::move(value), false});
    return name;
  }

  /// Returns false if a scale or the bias is not a constant with one number, or one per channel.
  bool pair(const Chain& c, std::vector<OnnxNode>& nodes) {
    const Tensor x = graph_.constant(c.scale->inputs[0]), w = graph_.constant(c.scale->inputs[1]),
                 codes = graph_.constant(c.conv->inputs[1]), bias = graph_.constant(c.add->inputs[1]);
    for (const Tensor& value : {x, w, codes, bias})
      if (!value.defined()) return false;
    const std::int64_t channels = codes.rank() == 0 ? 0 : codes.dim(0);
    if (x.rank() != 0 || x.dtype() != DType::f32 || w.dtype() != DType::f32 || bias.dtype() != DType::i32 ||
        (w.numel() != 1 && w.numel() != channels) || bias.numel() != channels)
      return false;
    const Shape scales = w.rank() == 0 ? Shape{} : Shape{w.numel()};
    // The scale of the sums and of the bias, with the rounding of the exporter: fl(s_x * s_w).
    Tensor both = Tensor::empty(scales);
    const auto one = static_cast<float>(x.item());
    const auto own = w.to_vector<float>();
    for (std::size_t i = 0; i < own.size(); ++i) both.mutable_data<float>()[i] = scalar::mul_(one, own[i]);
    const std::string& name = c.scaled->name;
    const auto dequantized = [&](const char* part, std::vector<std::string> inputs) {
      const std::string floats = name + part;
      nodes.push_back(
          {"DequantizeLinear", floats, "", std::move(inputs), {floats}, {{"axis", std::int64_t{0}}}});
      return floats;
    };
    std::vector<std::string> factors{
        dequantized(".paired_input", {c.conv->inputs[0], c.quantize->inputs[1], c.quantize->inputs[2]}),
        // Without a zero point: the weight is signed.
        dequantized(".paired_weight",
                    {c.conv->inputs[1], constant(name + ".paired_scale", w.reshape(scales))}),
        dequantized(".paired_bias", {constant(name + ".bias", bias.reshape({channels})),
                                     constant(name + ".paired_scales", std::move(both))})};
    nodes.push_back({"Conv", name, "", std::move(factors), c.scaled->outputs, c.conv->attributes});
    return true;
  }

  PairGraph graph_;
  OnnxModel out_;
};

}  // namespace

OnnxModel pair_convolutions(const OnnxModel& model) {
  const bool some =
      std::ranges::any_of(model.nodes, [](const auto& node) { return node.op == "ConvInteger"; });
  return some ? Pairing(model).run() : model;
}

}  // namespace fq::detail
