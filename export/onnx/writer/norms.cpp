#include "fakequant/core/detail/check.h"
#include "fakequant/export/onnx/writer/forms.h"

namespace fq::detail {
namespace {

GraphBuilder::Attributes epsilon(const Call& call) {
  return {{"epsilon", static_cast<float>(call.get<double>("eps"))}};
}

/// Returns a vector of ones or zeros if the module has no parameter.
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
  out.node(call, "BatchNormalization", {out.input(call, 0), gamma, beta, mean, variance}, epsilon(call));
}

void layer_norm(Exporting& out, const Call& call) {
  out.graph().needs_opset(17);
  auto attributes = epsilon(call);
  attributes.emplace_back("axis", -call.get<std::int64_t>("axes"));
  out.node(call, "LayerNormalization", all_inputs(out, call), std::move(attributes));
}

/// Writes x / sqrt(mean(x^2) + eps) * gamma, the form that engines recognise.
void rms_norm(Exporting& out, const Call& call) {
  out.graph().needs_opset(18);
  const std::string name = Exporting::node_name(call), x = out.input(call, 0);
  auto& graph = out.graph();
  Numbers axes;
  for (std::int64_t axis = -call.get<std::int64_t>("axes"); axis < 0; ++axis) axes.push_back(axis);
  const std::string square = graph.add("Mul", name + ".square", {x, x});
  const std::string mean =
      graph.add("ReduceMean", name + ".mean", {square, integers(out, name + ".axes", axes)});
  const std::string sum =
      graph.add("Add", name + ".sum", {mean, number(out, name + ".eps", call.get<double>("eps"))});
  const std::string root = graph.add("Sqrt", name + ".root", {sum});
  if (!call.inputs.at(1).defined()) return out.node(call, "Div", {x, root});
  out.node(call, "Mul", {graph.add("Div", name + ".quotient", {x, root}), out.input(call, 1)});
}

void instance_norm(Exporting& out, const Call& call) {
  out.node(call, "InstanceNormalization",
           {out.input(call, 0), channel_numbers(out, call, 1, 1), channel_numbers(out, call, 2, 0)},
           epsilon(call));
}

/// Returns [C] with trailing axes, so that it broadcasts against the channels of the output.
std::string broadcast_channels(Exporting& out, const Call& call, std::size_t i, const char* what) {
  const Variable& p = call.inputs.at(i);
  Shape shape(static_cast<std::size_t>(call.output.rank() - 1), 1);
  shape[0] = p.dim(0);
  const std::string name = out.parameter_name(p, Exporting::node_name(call) + what);
  return out.graph().constant(name, p.tensor().reshape(std::move(shape)));
}

/// Writes an InstanceNormalization with groups as channels, then weight and bias.
void group_norm(Exporting& out, const Call& call) {
  auto& graph = out.graph();
  const std::string name = Exporting::node_name(call);
  const auto groups = call.get<std::int64_t>("groups");
  // x: [N, C, ..] as [N, groups, C / groups * pixels]. Before opset 21, ONNX's
  // GroupNormalization has one scale per group.
  const std::string rows = graph.add("Reshape", name + ".groups",
                                     {out.input(call, 0), integers(out, name + ".rows", {0, groups, -1})});
  const std::string ones = graph.constant(name + ".ones", Tensor::full({groups}, 1.0)),
                    zeros = graph.constant(name + ".zeros", Tensor::zeros({groups}));
  const std::string normal =
      graph.add("InstanceNormalization", name + ".normal", {rows, ones, zeros}, epsilon(call));
  std::string y = graph.add("Reshape", name + ".back", {normal, open_shape(out, call)});
  if (call.inputs.at(1).defined())
    y = graph.add("Mul", name + ".scaled", {y, broadcast_channels(out, call, 1, ".weight")});
  if (call.inputs.at(2).defined())
    y = graph.add("Add", name + ".shifted", {y, broadcast_channels(out, call, 2, ".bias")});
  out.give(call, y);
}

void local_response_norm(Exporting& out, const Call& call) {
  const auto size = call.get<std::int64_t>("size");
  FQ_CHECK(size % 2 == 1, "export_onnx", "'{}' covers {} channels: engines support odd numbers", call.path,
           size);
  const auto value = [&](const char* name) { return static_cast<float>(call.get<double>(name)); };
  out.node(call, "LRN", {out.input(call, 0)},
           {{"alpha", value("alpha")}, {"beta", value("beta")}, {"bias", value("k")}, {"size", size}});
}

}  // namespace

Forms norm_forms() {
  return {
      {"batch_norm", batch_norm},       {"layer_norm", layer_norm},
      {"rms_norm", rms_norm},           {"group_norm", group_norm},
      {"instance_norm", instance_norm}, {"local_response_norm", local_response_norm},
  };
}

}  // namespace fq::detail
