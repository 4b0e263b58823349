#include "fakequant/export/onnx/reader/quantized/pair_graph.h"

#include <algorithm>

#include "fakequant/export/onnx/detail/element_type.h"
#include "fakequant/export/onnx/reader/folding/fold.h"
#include "fakequant/export/onnx/reader/op_import.h"

namespace fq::detail {

bool is_pair_operator(const OnnxNode& node, std::string_view op) {
  if (node.domain.empty() || node.domain == "com.microsoft") return node.op == op;
  return node.domain == "trt" && node.op == "TRT_FP8" + std::string(op);
}

PairGraph::PairGraph(const OnnxModel& model) : model_(model) {
  for (const auto& value : model.initializers) constants_.emplace(value.name, value.value);
  for (const auto& node : model.nodes)
    if (!node.outputs.empty()) makers_.emplace(node.outputs[0], &node);
  for (const auto& node : model.nodes)
    for (const auto& input : node.inputs) readers_[input].push_back(&node);
}

const OnnxNode* PairGraph::maker(const std::string& name) const {
  const auto found = makers_.find(name);
  return found == makers_.end() ? nullptr : found->second;
}

Tensor PairGraph::constant(const std::string& name) const {
  if (const auto found = constants_.find(name); found != constants_.end()) return found->second;
  // PyTorch's exporters put Identity nodes before shared initializers. 64 limits the work for damaged files.
  const OnnxNode* node = maker(name);
  for (int depth = 0; node != nullptr && node->op == "Identity" && !node->inputs.empty() && depth < 64;
       ++depth) {
    if (const auto found = constants_.find(node->inputs[0]); found != constants_.end()) return found->second;
    node = maker(node->inputs[0]);
  }
  if (node == nullptr || node->op != "Constant" || !node->domain.empty()) return {};
  // A Constant node creates no more elements than the file contains.
  FoldBudget budget{kLargestSize};
  return fold(NodeReader(*node), {}, budget).value_or(Tensor());
}

bool PairGraph::is_output(const std::string& name) const {
  return std::ranges::find(model_.outputs, name, &OnnxValueInfo::name) != model_.outputs.end();
}

const OnnxNode* PairGraph::clipped_quantizer(const OnnxNode& node) const {
  // The exporter limits codes by a Clip between the two nodes of a pair.
  if (node.op != "Clip" || !node.domain.empty() || node.inputs.empty()) return nullptr;
  const OnnxNode* before = maker(node.inputs[0]);
  return before != nullptr && is_pair_operator(*before, "QuantizeLinear") ? before : nullptr;
}

DType PairGraph::type_of_codes(const OnnxNode& quantize) const {
  if (quantize.domain == "trt") return DType::f8_e4m3;
  const NodeReader reader(quantize);
  const auto number = static_cast<int>(reader.integer("output_dtype", 0, 0, 1 << 20));
  const Tensor zero = reader.has_input(2) ? constant(quantize.inputs[2]) : Tensor();
  // ONNX's default without a zero point is u8.
  const DType otherwise = zero.defined() ? zero.dtype() : DType::u8;
  const auto type = number == 0 ? otherwise : dtype_of_onnx(number);
  reader.check(type.has_value(), "attribute 'output_dtype' is {}: codes here have no such type", number);
  reader.check(!zero.defined() || zero.dtype() == *type,
               "attribute 'output_dtype' is {}: its zero point is {}", name(*type), zero.describe());
  return *type;
}

void PairGraph::check_read_by_codes(const OnnxNode& quantize) const {
  const NodeReader reader(quantize);
  reader.check(!quantize.outputs.empty(), "it has no output");
  const auto found = readers_.find(quantize.outputs[0]);
  reader.check(found != readers_.end(), "nothing reads its codes: the output of a network must be floats");
  // Operators on codes (QLinearConv, MatMulInteger) have no layer here.
  for (const OnnxNode* next : found->second)
    if (!is_pair_operator(*next, "DequantizeLinear") && clipped_quantizer(*next) == nullptr)
      reader.fail(
          "its codes go into '{}' ({}), where a DequantizeLinear is expected: write the file with pairs of "
          "both around operators of floats (QDQ)",
          next->name.substr(0, 100), operator_name(*next));
}

}  // namespace fq::detail
