#include "fakequant/layers/model/trace.h"

#include <algorithm>
#include <ostream>
#include <set>

#include <fmt/format.h>

#include "fakequant/core/ops/operators.h"
#include "fakequant/layers/model/detail/meta_scope.h"

namespace fq {
namespace {

/// Returns the multiply-adds of a node. Each output element of a product takes one per element of its weight
/// row.
std::int64_t multiply_adds(const TraceGraph& graph, const TraceNode& node) {
  const OperatorTraits& op = traits(node.op);
  if (!op.is_product) return 0;
  const Shape& out = graph.values[static_cast<std::size_t>(node.output)].shape;
  const Shape& in = graph.input(node, 0).shape;
  const Shape& w = graph.input(node, 1).shape;
  // A transposed convolution multiplies each input element by all weights of its channel.
  if (op.transposed) return numel(in) * numel(w) / w[0];
  // A product of two activations, [.., L, K] * [.., K, S].
  if (!op.has_weight) return numel(out) * in.back();
  return numel(out) * (numel(w) / w[0]);
}

}  // namespace

TraceGraph trace(Module& model, const Shape& input_shape) {
  // Parameters are on `meta`: a trace costs no memory and computes no values.
  const detail::MetaScope meta_scope(model);
  const NoGrad no_grad;
  Recorder recorder;
  // Inside the scope, so that the names belong to the stand-ins that operators see.
  for (const auto& [name, value] : model.named_parameters()) recorder.name(value, name);
  const Variable input(Tensor::empty(input_shape, DType::f32, Device::meta()));
  recorder.name(input, "input");
  recorder.mark_input(input);
  const RecordScope scope(recorder);
  return recorder.finish(model(input));
}

Summary summary(Module& model, const Shape& input_shape) {
  Summary out;
  std::set<std::string> counted;
  const auto parameters = model.named_parameters();
  const TraceGraph graph = trace(model, input_shape);
  for (const auto& node : graph.nodes) {
    // Conversions between codes and floats are not operators of the network.
    if (traits(node.op).is_conversion) continue;
    SummaryRow row{node.path, node.op, graph.values[static_cast<std::size_t>(node.output)].shape, 0, 0, 0};
    // A module that runs several times has its parameters once.
    if (counted.insert(node.path).second)
      for (const auto& [name, value] : parameters)
        if (name.substr(0, name.rfind('.')) == node.path) row.parameters += value.numel();
    row.multiply_adds = multiply_adds(graph, node);
    row.activation_bytes = numel(row.output) * 4;
    out.multiply_adds += row.multiply_adds;
    out.activation_bytes += row.activation_bytes;
    out.rows.push_back(std::move(row));
  }
  for (const auto& parameter : model.parameters()) out.parameters += parameter.numel();
  return out;
}

std::ostream& operator<<(std::ostream& out, const Summary& summary) {
  std::size_t width = 6;
  for (const auto& row : summary.rows) width = std::max(width, row.path.size());
  const auto line = [&](const auto& path, const auto& op, const auto& shape, const auto& p, const auto& m,
                        const auto& b) {
    out << fmt::format("{:<{}}  {:<16} {:<20} {:>10} {:>12} {:>12}\n", path, width, op, shape, p, m, b);
  };
  line("module", "operator", "output", "parameters", "mult-adds", "bytes");
  for (const auto& row : summary.rows)
    line(row.path, row.op, to_string(row.output), row.parameters, row.multiply_adds, row.activation_bytes);
  line("total", "", "", summary.parameters, summary.multiply_adds, summary.activation_bytes);
  return out;
}

}  // namespace fq
