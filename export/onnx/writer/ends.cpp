// The input and the output of the graph.

#include <algorithm>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/operators.h"
#include "fakequant/export/onnx/writer/exporting.h"

namespace fq::detail {

bool Exporting::ends_in_e4m3(const Variable& value) const {
  const auto& readers = early_.readers(value);
  return std::ranges::any_of(readers, [&](const Call* reader) {
    if (reader->op == "quantize") return !reader->output.quantized()->spec.format.is_integer();
    return traits(reader->op).keeps_codes && ends_in_e4m3(reader->output);
  });
}

bool Exporting::is_ids(const Variable& value) const {
  const auto& readers = early_.readers(value);
  return !readers.empty() && std::ranges::all_of(readers, [&](const Call* reader) {
    if (reader->op == "embedding") return reader->inputs.at(0).node() == value.node();
    return traits(reader->op).keeps_codes && !reader->op.starts_with("max_pool") && is_ids(reader->output);
  });
}

OnnxValueInfo Exporting::end(std::string name, DType dtype, const Variable& value, const Shape& open) const {
  OnnxValueInfo info{std::move(name), OnnxKind::tensor, dtype, true, {}};
  const std::int64_t batch = calls_.input.shape()[0];
  for (std::size_t axis = 0; axis < open.size(); ++axis)
    info.shape.push_back({open[axis], open[axis] < 0 && value.shape()[axis] == batch ? "N" : ""});
  FQ_CHECK(std::ranges::count(open, -1) <= 1 || value.rank() == 0, "export_onnx",
           "more than one axis follows the batch");
  return info;
}

void Exporting::add_ends() {
  OnnxModel& model = graph_.model;
  Shape input = calls_.input.shape();
  input[0] = -1;
  model.inputs = {end("input", takes_ids() ? DType::i64 : DType::f32, calls_.input, input)};
  const Node* last = calls_.output.node().get();
  const auto from =
      std::ranges::find(calls_.list, last, [](const Call& call) { return call.output.node().get(); });
  const std::string floats = this->floats(calls_.output);
  const auto maker =
      std::ranges::find_if(model.nodes, [&](const OnnxNode& node) { return node.outputs[0] == floats; });
  const bool only = std::ranges::none_of(model.nodes, [&](const OnnxNode& node) {
    return std::ranges::find(node.inputs, floats) != node.inputs.end();
  });
  if (maker != model.nodes.end() && only)
    maker->outputs[0] = "output";
  else
    model.nodes.push_back({"Identity", "output", "", {floats}, {"output"}, {}});
  model.outputs = {
      end("output", DType::f32, calls_.output, from == calls_.list.end() ? input : open_shapes_.at(&*from))};
}

}  // namespace fq::detail
