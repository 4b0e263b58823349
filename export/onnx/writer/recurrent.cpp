#include "fakequant/core/detail/join.h"
#include "fakequant/export/onnx/writer/forms.h"

namespace fq::detail {
namespace {

/// Blocks of `size` rows in another order.
Tensor reordered(const Tensor& x, std::int64_t size, const Numbers& order) {
  std::vector<Tensor> parts;
  for (const auto block : order) parts.push_back(cut(x, 0, block * size, (block + 1) * size));
  return join(parts, 0);
}

/// ONNX has LSTMs as i, o, f, g and GRUs as z, r, n, with steps before samples.
void recurrent(Exporting& out, const Call& call) {
  auto& graph = out.graph();
  const bool is_lstm = call.op == "lstm";
  const Numbers order = is_lstm ? Numbers{0, 3, 1, 2} : Numbers{1, 0, 2};
  const std::string name = Exporting::node_name(call);
  const auto size = call.get<std::int64_t>("hidden_size");
  const auto rows = static_cast<std::int64_t>(order.size()) * size;
  const auto weight = [&](std::size_t i, const char* what) {
    const Tensor matrix = reordered(call.inputs.at(i).tensor(), size, order);
    return graph.constant(name + what, matrix.reshape({1, rows, matrix.dim(1)}));
  };
  const auto bias = [&](std::size_t i) {
    return call.inputs.at(i).defined() ? reordered(call.inputs[i].tensor(), size, order)
                                       : Tensor::zeros({rows});
  };
  std::vector<std::string> inputs{
      graph.add("Transpose", name + ".steps", {out.input(call, 0)}, {{"perm", Numbers{1, 0, 2}}}),
      weight(1, ".weight_ih"), weight(2, ".weight_hh"),
      graph.constant(name + ".bias", join({bias(3), bias(4)}, 0).reshape({1, 2 * rows}))};
  const std::string axis = integers(out, name + ".axis", {0});
  for (std::size_t i = 5; i < call.inputs.size(); ++i) {
    if (!call.inputs[i].defined()) continue;
    inputs.resize(i, "");
    inputs.push_back(graph.add("Unsqueeze", name + ".state", {out.input(call, i), axis}));
  }
  GraphBuilder::Attributes attributes{
      {"hidden_size", size}, {"direction", std::string(call.get<bool>("reverse") ? "reverse" : "forward")}};
  if (!is_lstm) attributes.emplace_back("linear_before_reset", std::int64_t{1});
  const std::string y =
      graph.add(is_lstm ? "LSTM" : "GRU", name + ".layer", std::move(inputs), std::move(attributes));
  const std::string ways = integers(out, name + ".ways", {1});
  out.node(call, "Transpose", {graph.add("Squeeze", name + ".way", {y, ways})}, {{"perm", Numbers{1, 0, 2}}});
}

}  // namespace

Forms recurrent_forms() { return {{"lstm", recurrent}, {"gru", recurrent}}; }

}  // namespace fq::detail
