#include <map>

#include "fakequant/core/detail/check.h"
#include "fakequant/export/onnx/writer/exporting.h"

namespace fq::detail {
namespace {

using Numbers = std::vector<std::int64_t>;
using Emit = void (*)(Exporting&, const Call&);

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

/// An operator of the same inputs and no attributes.
template <const char* op>
void same(Exporting& out, const Call& call) {
  out.node(call, op, all_inputs(out, call));
}

void clip_between(Exporting& out, const Call& call, double low, double high) {
  const std::string name = Exporting::node_name(call);
  out.node(call, "Clip",
           {out.input(call, 0), number(out, name + ".low", low), number(out, name + ".high", high)});
}

/// ONNX Runtime removes a Relu before a quantizer of E4M3, and with it the ReLU's work.
void relu(Exporting& out, const Call& call) {
  if (out.give_relu(call)) return;
  if (out.options().target == Target::ort && out.ends_in_e4m3(call.output))
    return out.node(call, "Max", {out.input(call, 0), number(out, "zero", 0)});
  out.node(call, "Relu", {out.input(call, 0)});
}

void relu6(Exporting& out, const Call& call) { clip_between(out, call, 0, 6); }
void clip(Exporting& out, const Call& call) {
  clip_between(out, call, call.get<double>("low"), call.get<double>("high"));
}

void leaky_relu(Exporting& out, const Call& call) {
  out.node(call, "LeakyRelu", {out.input(call, 0)},
           {{"alpha", static_cast<float>(call.get<double>("slope"))}});
}

void gelu(Exporting& out, const Call& call) {
  out.graph().needs_opset(20);
  out.node(call, "Gelu", {out.input(call, 0)}, {{"approximate", call.get<std::string>("approximate")}});
}

void hard_sigmoid(Exporting& out, const Call& call) {
  out.node(call, "HardSigmoid", {out.input(call, 0)}, {{"alpha", 1.0F / 6}, {"beta", 0.5F}});
}

void hard_swish(Exporting& out, const Call& call) {
  out.graph().needs_opset(14);
  out.node(call, "HardSwish", {out.input(call, 0)});
}

void silu(Exporting& out, const Call& call) {
  const std::string x = out.input(call, 0);
  const std::string gate = out.graph().add("Sigmoid", Exporting::node_name(call) + ".sigmoid", {x});
  out.node(call, "Mul", {x, gate});
}

template <const char* op>
void along_axis(Exporting& out, const Call& call) {
  out.node(call, op, all_inputs(out, call), {{"axis", call.get<std::int64_t>("axis")}});
}

void scale(Exporting& out, const Call& call) {
  const std::string factor = number(out, Exporting::node_name(call) + ".factor", call.get<double>("factor"));
  out.node(call, "Mul", {out.input(call, 0), factor});
}

void pre_quant_scale(Exporting& out, const Call& call) {
  const Tensor factors = out.quantizer_at(call.path).settings().pre_quant_scale;
  out.node(call, "Mul", {out.input(call, 0), out.graph().constant(call.path + ".pre_quant_scale", factors)});
}

GraphBuilder::Attributes window(const Call& call) {
  Numbers pads = call.get<Numbers>("padding");
  pads.insert(pads.end(), pads.begin(), pads.begin() + 2);
  return {{"kernel_shape", call.get<Numbers>("kernel")},
          {"strides", call.get<Numbers>("stride")},
          {"pads", pads}};
}

void max_pool(Exporting& out, const Call& call) {
  out.node(call, "MaxPool", {out.input(call, 0)}, window(call));
}

void avg_pool(Exporting& out, const Call& call) {
  auto attributes = window(call);
  attributes.emplace_back("count_include_pad", std::int64_t{call.get<bool>("count_include_pad")});
  out.node(call, "AveragePool", {out.input(call, 0)}, std::move(attributes));
}

/// Sizes that follow the batch are left open: 0 copies the input's size, -1 is what remains.
void reshape(Exporting& out, const Call& call) {
  Numbers shape = out.open_shape(call);
  const auto name = Exporting::node_name(call);
  if (!shape.empty() && shape[0] == -1 && call.inputs[0].shape()[0] == call.output.shape()[0]) shape[0] = 0;
  out.node(call, "Reshape", {out.input(call, 0), integers(out, name + ".shape", shape)});
}

void flatten(Exporting& out, const Call& call) {
  if (call.get<std::int64_t>("start_axis") != 1) return reshape(out, call);
  out.node(call, "Flatten", {out.input(call, 0)}, {{"axis", std::int64_t{1}}});
}

void transpose(Exporting& out, const Call& call) {
  out.node(call, "Transpose", {out.input(call, 0)}, {{"perm", call.get<Numbers>("axes")}});
}

void slice(Exporting& out, const Call& call) {
  const auto name = Exporting::node_name(call);
  FQ_CHECK(out.open_shape(call)[static_cast<std::size_t>(call.get<std::int64_t>("axis"))] >= 0, "export_onnx",
           "'{}' cuts the batch: its size is not known in the graph", call.path);
  out.node(call, "Slice",
           {out.input(call, 0), integers(out, name + ".begin", {call.get<std::int64_t>("begin")}),
            integers(out, name + ".end", {call.get<std::int64_t>("end")}),
            integers(out, name + ".axis", {call.get<std::int64_t>("axis")})});
}

/// A vector of ones or zeros where the module has none.
std::string channel_numbers(Exporting& out, const Call& call, std::size_t i, double otherwise) {
  if (call.inputs.at(i).defined()) return out.input(call, i);
  const std::string name = Exporting::node_name(call) + (i == 1 ? ".weight" : ".bias");
  return out.graph().constant(name, Tensor::full({call.output.dim(1)}, otherwise));
}

void batch_norm(Exporting& out, const Call& call) {
  const std::string name = Exporting::node_name(call);
  const std::string gamma = channel_numbers(out, call, 1, 1), beta = channel_numbers(out, call, 2, 0);
  const std::string mean = out.graph().constant(name + ".running_mean", call.inputs.at(3).tensor());
  const std::string variance = out.graph().constant(name + ".running_var", call.inputs.at(4).tensor());
  out.node(call, "BatchNormalization", {out.input(call, 0), gamma, beta, mean, variance},
           {{"epsilon", static_cast<float>(call.get<double>("eps"))}});
}

void layer_norm(Exporting& out, const Call& call) {
  out.graph().needs_opset(17);
  out.node(
      call, "LayerNormalization", all_inputs(out, call),
      {{"axis", -call.get<std::int64_t>("axes")}, {"epsilon", static_cast<float>(call.get<double>("eps"))}});
}

/// Where something else computes with the numbers too, the graph has floats and the ids are made of them.
void embedding(Exporting& out, const Call& call) {
  std::string ids = out.input(call, 0);
  if (!out.takes_ids())
    ids = out.graph().add("Cast", Exporting::node_name(call) + ".ids", {ids}, {{"to", std::int64_t{7}}});
  out.node(call, "Gather", {out.input(call, 1), ids}, {{"axis", std::int64_t{0}}});
}

constexpr char kAdd[] = "Add", kSub[] = "Sub", kMul[] = "Mul", kNeg[] = "Neg", kTanh[] = "Tanh",
               kSigmoid[] = "Sigmoid", kMatMul[] = "MatMul", kGlobal[] = "GlobalAveragePool",
               kConcat[] = "Concat", kSoftmax[] = "Softmax", kLogSoftmax[] = "LogSoftmax";

const std::map<std::string_view, Emit>& forms() {
  static const std::map<std::string_view, Emit> all{
      {"linear", emit_product},
      {"conv1d", emit_product},
      {"conv2d", emit_product},
      {"conv_transpose2d", emit_product},
      {"matmul", same<kMatMul>},
      {"add", same<kAdd>},
      {"sub", same<kSub>},
      {"multiply", same<kMul>},
      {"neg", same<kNeg>},
      {"scale", scale},
      {"pre_quant_scale", pre_quant_scale},
      {"relu", relu},
      {"relu6", relu6},
      {"clip", clip},
      {"leaky_relu", leaky_relu},
      {"gelu", gelu},
      {"silu", silu},
      {"sigmoid", same<kSigmoid>},
      {"hard_sigmoid", hard_sigmoid},
      {"hard_swish", hard_swish},
      {"tanh", same<kTanh>},
      {"softmax", along_axis<kSoftmax>},
      {"log_softmax", along_axis<kLogSoftmax>},
      {"concat", along_axis<kConcat>},
      {"max_pool2d", max_pool},
      {"avg_pool2d", avg_pool},
      {"global_avg_pool2d", same<kGlobal>},
      {"reshape", reshape},
      {"flatten", flatten},
      {"transpose", transpose},
      {"slice", slice},
      {"batch_norm", batch_norm},
      {"layer_norm", layer_norm},
      {"embedding", embedding},
      {"fake_tensor_quant", emit_fake_quant},
      {"legacy_fake_tensor_quant", emit_fake_quant},
      {"scaled_e4m3", emit_fake_quant},
      {"tensor_quant", emit_tensor_quant},
      {"tensor_quant_scale", emit_tensor_quant_scale},
  };
  return all;
}

}  // namespace

bool emit_operator(Exporting& out, const Call& call) {
  const auto form = forms().find(call.op);
  if (form == forms().end()) return false;
  form->second(out, call);
  return true;
}

}  // namespace fq::detail
