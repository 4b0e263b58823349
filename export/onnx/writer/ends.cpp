// Inputs and outputs of the graph.

#include <algorithm>
#include <set>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/ops/operators.h"
#include "fakequant/export/onnx/detail/element_type.h"
#include "fakequant/export/onnx/writer/exporting.h"

namespace fq::detail {
namespace {

Shape open_batch(const Variable& value) {
  Shape shape = value.shape();
  shape[0] = -1;
  return shape;
}

DType dtype_of_part(const std::string& type) {
  for (const DType dtype : {DType::f64, DType::f16, DType::i8, DType::u8, DType::i16, DType::i32, DType::i64})
    if (name(dtype) == type) return dtype;
  // A bool is a u8 here. Its kind in the file is set by the caller.
  return type == "bool" ? DType::u8 : DType::f32;
}

}  // namespace

bool Exporting::ends_in_e4m3(const Variable& value) const {
  const auto& readers = early_.readers(value);
  return std::ranges::any_of(readers, [&](const Call* reader) {
    if (reader->op == "quantize") return !reader->output.quantized()->grid.format.is_integer();
    return traits(reader->op).keeps_codes && ends_in_e4m3(reader->output);
  });
}

bool Exporting::is_ids(const Variable& value) const {
  const auto& readers = early_.readers(value);
  return !readers.empty() && std::ranges::all_of(readers, [&](const Call* reader) {
    // The value must be the row numbers, not the table.
    if (reader->op == "embedding") return reader->inputs.at(0).node() == value.node();
    return traits(reader->op).keeps_codes && !reader->op.starts_with("max_pool") && is_ids(reader->output);
  });
}

OnnxValueInfo Exporting::end(std::string name, DType dtype, const Variable& value, const Shape& open) const {
  OnnxValueInfo info{std::move(name), OnnxKind::tensor, dtype, true, {}};
  const std::int64_t batch = calls_.input.shape()[0];
  for (std::size_t axis = 0; axis < open.size(); ++axis)
    info.shape.push_back({open[axis], open[axis] < 0 && value.shape()[axis] == batch ? "N" : ""});
  // Reshape infers only one size (-1), so only one axis may depend on the batch.
  FQ_CHECK(std::ranges::count(open, -1) <= 1 || value.rank() == 0, "export_onnx",
           "more than one axis follows the batch");
  return info;
}

bool Exporting::takes_ids(const Variable& value) const {
  const Node* node = value.node().get();
  if (node == calls_.input.node().get()) return is_ids(value);
  if (id_parts_.contains(node)) return true;
  const auto maker = makers_.find(node);
  return maker != makers_.end() && traits(maker->second->op).keeps_codes &&
         takes_ids(maker->second->inputs.at(0));
}

void Exporting::add_inputs() {
  std::vector<const Call*> parts;
  for (const auto& call : calls_.list)
    if (call.op == "input_part") parts.push_back(&call);
  if (!parts.empty()) {
    check_parts(parts);
    // Reserves the names of all inputs before a node of one input can take the name of another.
    for (const Call* part : parts) graph_.free_tensor_name(part->get<std::string>("name"));
    for (const Call* part : parts) add_part(*part);
    return;
  }
  graph_.free_tensor_name("input");
  values_[calls_.input.node().get()].floats = "input";
  const DType dtype = is_ids(calls_.input) ? DType::i64 : DType::f32;
  graph_.model.inputs = {end("input", dtype, calls_.input, open_batch(calls_.input))};
}

void Exporting::check_parts(const std::vector<const Call*>& parts) const {
  const Node* row = calls_.input.node().get();
  for (const auto& call : calls_.list)
    FQ_CHECK(
        (call.op == "input_part") ==
            std::ranges::any_of(call.inputs, [&](const auto& input) { return input.node().get() == row; }),
        "export_onnx", "'{}' ({}): only parts may read the network's input if it has parts", call.path,
        call.op);
  std::set<std::string> names{"output"};
  std::int64_t covered = 0;
  for (const Call* part : parts) {
    const auto begin = part->get<std::int64_t>("begin");
    const auto& name = part->get<std::string>("name");
    // An importer of the file concatenates the inputs in their order.
    FQ_CHECK(begin == covered, "export_onnx",
             "the input '{}' begins with element {}, the one before it ends with {}: "
             "inputs follow each other",
             name, begin, covered - 1);
    FQ_CHECK(names.insert(name).second, "export_onnx", "two of the inputs and the output are called '{}'",
             name);
    covered = begin + numel(part->get<Shape>("shape"));
  }
  FQ_CHECK(covered == calls_.input.dim(1), "export_onnx", "inputs of {} elements are parts of rows of {}",
           covered, calls_.input.dim(1));
}

/// Keeps row numbers as integers. Other inputs are converted to floats.
void Exporting::add_part(const Call& part) {
  const auto& type = part.get<std::string>("type");
  const Node* node = part.output.node().get();
  OnnxValueInfo info = end(part.get<std::string>("name"), dtype_of_part(type), part.output, open_shape(part));
  if (type == "bool") info.kind = OnnxKind::boolean;
  if ((type == "i64" || type == "i32") && is_ids(part.output)) id_parts_.insert(node);
  const bool as_is = type == "f32" || id_parts_.contains(node) || !is_read(part.output);
  values_[node].floats = as_is ? info.name
                               : graph_.add("Cast", node_name(part) + ".floats", {info.name},
                                            {{"to", std::int64_t{onnx_type(DType::f32)}}});
  graph_.model.inputs.push_back(std::move(info));
}

void Exporting::add_ends() {
  OnnxModel& model = graph_.model;
  const Node* last = calls_.output.node().get();
  const auto from =
      std::ranges::find(calls_.list, last, [](const Call& call) { return call.output.node().get(); });
  const std::string floats = this->floats(calls_.output);
  const auto maker =
      std::ranges::find_if(model.nodes, [&](const OnnxNode& node) { return node.outputs[0] == floats; });
  const bool only = std::ranges::none_of(model.nodes, [&](const OnnxNode& node) {
    return std::ranges::find(node.inputs, floats) != node.inputs.end();
  });
  // Another reader would need the old name, so an Identity keeps both.
  if (maker != model.nodes.end() && only)
    maker->outputs[0] = "output";
  else
    model.nodes.push_back({"Identity", "output", "", {floats}, {"output"}, {}});
  model.outputs = {end("output", DType::f32, calls_.output,
                       from == calls_.list.end() ? open_batch(calls_.input) : open_shapes_.at(&*from))};
}

}  // namespace fq::detail
