#include "fakequant/core/ops/operators.h"

#include <algorithm>

#include "fakequant/core/detail/check.h"
#include "fakequant/export/onnx/writer/forms.h"

namespace fq::detail {

std::vector<std::string> all_inputs(Exporting& out, const Call& call) {
  std::vector<std::string> names;
  for (const auto& input : call.inputs) names.push_back(out.floats(input));
  return names;
}

std::string number(Exporting& out, const std::string& name, double value) {
  return out.graph().constant(name, Tensor::scalar(value));
}
std::string integers(Exporting& out, const std::string& name, const Numbers& values) {
  return out.graph().constant(name,
                              Tensor::from<std::int64_t>(values, {static_cast<std::int64_t>(values.size())}));
}

std::string open_shape(Exporting& out, const Call& call) {
  Numbers shape = out.open_shape(call);
  // 0 copies the batch of the input, which leaves -1 free for another axis.
  if (!shape.empty() && shape[0] == -1 && call.inputs[0].shape()[0] == call.output.shape()[0]) shape[0] = 0;
  return integers(out, Exporting::node_name(call) + ".shape", shape);
}

namespace {

void pre_quant_scale(Exporting& out, const Call& call) {
  const Tensor factors = out.find_quantizer(call.path).params().pre_quant_scale;
  out.node(call, "Mul", {out.input(call, 0), out.graph().constant(call.path + ".pre_quant_scale", factors)});
}

GraphBuilder::Attributes window(const Call& call) {
  Numbers pads = call.get<Numbers>("padding");
  const auto& end = call.get<Numbers>("padding_end");
  // ONNX lists the pads before all axes, then the pads after all axes.
  pads.insert(pads.end(), end.begin(), end.end());
  GraphBuilder::Attributes all{{"kernel_shape", call.get<Numbers>("kernel")},
                               {"strides", call.get<Numbers>("stride")},
                               {"pads", pads}};
  if (call.get<bool>("ceil_mode")) all.emplace_back("ceil_mode", std::int64_t{1});
  return all;
}

void max_pool(Exporting& out, const Call& call) {
  auto attributes = window(call);
  if (const auto& dilation = call.get<Numbers>("dilation");
      std::ranges::count(dilation, 1) != std::ssize(dilation))
    attributes.emplace_back("dilations", dilation);
  out.node(call, "MaxPool", {out.input(call, 0)}, std::move(attributes));
}

void avg_pool(Exporting& out, const Call& call) {
  auto attributes = window(call);
  attributes.emplace_back("count_include_pad", std::int64_t{call.get<bool>("count_include_pad")});
  out.node(call, "AveragePool", {out.input(call, 0)}, std::move(attributes));
}

/// Writes a lookup. If other operators use the numbers too, the graph has floats and converts them to ids.
void embedding(Exporting& out, const Call& call) {
  std::string ids = out.input(call, 0);
  if (!out.takes_ids(call.inputs[0]))
    ids = out.graph().add("Cast", Exporting::node_name(call) + ".ids", {ids}, {{"to", std::int64_t{7}}});
  out.node(call, "Gather", {out.input(call, 1), ids}, {{"axis", std::int64_t{0}}});
}

/// Returns the share of each axis element in each mean, [from, to].
Tensor shares(std::int64_t from, std::int64_t to) {
  Tensor matrix = Tensor::zeros({from, to});
  for (std::int64_t i = 0; i < to; ++i) {
    // The windows of PyTorch's adaptive pooling: from floor(i * from / to) to ceil((i + 1) * from / to).
    const std::int64_t begin = i * from / to, end = ((i + 1) * from + to - 1) / to;
    for (std::int64_t k = begin; k < end; ++k)
      matrix.mutable_data<float>()[k * to + i] = 1.0F / static_cast<float>(end - begin);
  }
  return matrix;
}

/// Writes means over an axis as products with a matrix. Each axis of the image is moved to the end for its
/// product.
void adaptive_avg_pool(Exporting& out, const Call& call) {
  const std::string name = Exporting::node_name(call);
  const Shape x = call.inputs.at(0).shape();
  const auto& size = call.get<Numbers>("size");
  const auto axes = static_cast<std::int64_t>(size.size());
  Numbers turn{0, 1, 1 + axes};  // moves the last axis before the others
  for (std::int64_t i = 2; i < 1 + axes; ++i) turn.push_back(i);
  std::string y = out.input(call, 0);
  for (std::int64_t i = axes; i-- > 0;) {
    const std::string axis = fmt::format("{}.axis{}", name, i);
    const Tensor matrix = shares(x[static_cast<std::size_t>(2 + i)], size[static_cast<std::size_t>(i)]);
    y = out.graph().add("MatMul", axis, {y, out.graph().constant(axis + ".shares", matrix)});
    if (i > 0) y = out.graph().add("Transpose", axis + ".turned", {y}, {{"perm", turn}});
  }
  out.node(call, "Transpose", {y}, {{"perm", turn}});
}

Forms other_forms() {
  return {
      {"linear", emit_product},
      {"conv1d", emit_product},
      {"conv2d", emit_product},
      {"conv3d", emit_product},
      {"conv_transpose1d", emit_product},
      {"conv_transpose2d", emit_product},
      {"conv_transpose3d", emit_product},
      {"pre_quant_scale", pre_quant_scale},
      {"max_pool2d", max_pool},
      {"avg_pool2d", avg_pool},
      {"max_pool3d", max_pool},
      {"avg_pool3d", avg_pool},
      {"adaptive_avg_pool2d", adaptive_avg_pool},
      {"adaptive_avg_pool3d", adaptive_avg_pool},
      {"embedding", embedding},
      {"fake_tensor_quant", emit_fake_quant},
      {"legacy_fake_tensor_quant", emit_fake_quant},
      {"scaled_e4m3", emit_fake_quant},
      {"tensor_quant", emit_tensor_quant},
      {"tensor_quant_scale", emit_tensor_quant_scale},
  };
}

/// Returns an option of a call as an attribute.
OnnxAttribute plain_attribute(const Call& call, const OperatorOption& option) {
  const std::string name(option.name);
  if (option.is_choice()) return call.get<std::string>(name);
  if (option.is_integer) return call.get<std::int64_t>(name);
  return static_cast<float>(call.get<double>(name));
}

/// Writes an operator that ONNX has with the same inputs and options.
void emit_plain(Exporting& out, const Call& call, const OperatorSchema& row) {
  GraphBuilder::Attributes attributes;
  for (const OperatorOption& option : row.options()) {
    FQ_CHECK(!option.onnx.empty(), "export_onnx", "'{}': ONNX's {} has no attribute for the option '{}'",
             call.path, row.onnx, option.name);
    attributes.emplace_back(option.onnx, plain_attribute(call, option));
  }
  out.graph().needs_opset(row.onnx_opset);
  std::string op(row.onnx);
  // Comparisons return booleans in ONNX, and 1 or 0 in the network.
  if (!row.gives_truth) return out.node(call, std::move(op), all_inputs(out, call), std::move(attributes));
  const std::string truth =
      out.graph().add(std::move(op), Exporting::node_name(call) + ".truth", all_inputs(out, call));
  give_numbers(out, call, truth);
}

const Forms& forms() {
  static const Forms all = [] {
    Forms made = other_forms();
    for (const auto kind :
         {arithmetic_forms, attention_forms, function_forms, norm_forms, move_forms, recurrent_forms})
      made.merge(kind());
    return made;
  }();
  return all;
}

}  // namespace

void give_numbers(Exporting& out, const Call& call, const std::string& truth) {
  constexpr std::int64_t kFloat = 1;  // ONNX's number of the element type
  out.node(call, "Cast", {truth}, {{"to", kFloat}});
}

bool has_form(std::string_view op) {
  const OperatorSchema* row = operator_schema(op);
  return forms().contains(op) || (row != nullptr && !row->onnx.empty());
}

void emit_operator(Exporting& out, const Call& call) {
  if (const auto form = forms().find(call.op); form != forms().end())
    form->second(out, call);
  else
    emit_plain(out, call, *operator_schema(call.op));
}

}  // namespace fq::detail
