#include "fakequant/export/onnx/exporter.h"

#include <algorithm>
#include <set>

#include <fmt/ranges.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/ops/operators.h"
#include "fakequant/export/onnx/detail/element_type.h"
#include "fakequant/export/onnx/writer/exporting.h"
#include "fakequant/export/onnx/writer/graph_builder.h"
#include "fakequant/layers/config/target_profile.h"
#include "fakequant/layers/modules/detail/module_scopes.h"
#include "fakequant/layers/quantize.h"

namespace fq {
namespace detail {
namespace {

constexpr int kNewestOpset = 24;

Calls calls_for_batch(Module& model, const Shape& sample, std::int64_t batch) {
  Shape shape{batch};
  shape.insert(shape.end(), sample.begin(), sample.end());
  return record_calls(model, shape);
}
/// Returns the first version of the file format with that opset.
int ir_version(std::int64_t opset) {
  return opset <= 13 ? 7 : opset <= 18 ? 8 : opset <= 20 ? 9 : opset <= 22 ? 10 : opset <= 23 ? 11 : 12;
}

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

Shape OpenCalls::open_shape(std::size_t i) const {
  Shape shape = list[i].output.shape();
  for (std::size_t axis = 0; axis < shape.size(); ++axis)
    if (shape[axis] != wider[i][axis]) shape[axis] = -1;
  return shape;
}

OpenCalls record_open_calls(Module& model, const Shape& sample) {
  // An axis whose size differs between batches of 2 and 3 depends on the batch. A batch of 1 would not do: a
  // size of 1 is also the size of an axis that broadcasts.
  constexpr std::int64_t batch = 2;
  OpenCalls out{calls_for_batch(model, sample, batch), {}};
  const Calls more = calls_for_batch(model, sample, batch + 1);
  for (const auto& call : more.list) out.wider.push_back(call.output.shape());
  const auto same = [](const Call& a, const Call& b) {
    return a.op == b.op && a.path == b.path && a.output.rank() == b.output.rank();
  };
  FQ_CHECK(std::ranges::equal(out.list, more.list, same), "export_onnx",
           "the model calls different operators for batches of {} and {}: ONNX needs the same operators for "
           "every batch",
           batch, batch + 1);
  return out;
}

// Codes in the file have the name of their quantizer, which must be unique.
PathNames::PathNames(Module& model) {
  for (const auto& entry : named_quantizers(model)) {
    if (entry.quantizer->name() == entry.name) continue;
    before_.emplace_back(entry.quantizer, entry.quantizer->name());
    entry.quantizer->set_name(entry.name);
  }
}

PathNames::~PathNames() {
  for (auto& [quantizer, name] : before_) quantizer->set_name(std::move(name));
}

Exporting::Exporting(Module& model, const Shape& sample, const OnnxExportOptions& options)
    : model_(model),
      options_(options),
      names_(model),
      // `check_model` runs before the trace. Its messages name uncalibrated quantizers and wrong targets.
      calls_((check_model(), record_open_calls(model, sample))),
      early_(calls_, options.target == Target::ort) {
  for (std::size_t i = 0; i < calls_.list.size(); ++i) open_shapes_[&calls_.list[i]] = calls_.open_shape(i);
  // `calls_` does not change from here on, so pointers to its elements stay valid.
  for (const auto& call : calls_.list) makers_.emplace(call.output.node().get(), &call);
  for (const auto& entry : named_quantizers(model)) quantizers_[entry.quantizer->name()] = entry.quantizer;
  for (const auto& [name, value] : model.named_parameters())
    // A tied parameter has several names. The first one is used.
    parameters_.try_emplace(value.node().get(), name);
  name_codes();
}

void Exporting::check_model() const {
  const auto missing = uncalibrated_quantizers(model_);
  FQ_CHECK(missing.empty(), "export_onnx", "{} quantizers have no amax: calibrate {}", missing.size(),
           fmt::join(missing, ", "));
  const Target made_for = model_target(model_);
  const TargetProfile& engine = target_profile(made_for);
  FQ_CHECK(
      engine.onnx || made_for == Target::none, "export_onnx",
      "the model was quantized for the target {}, whose files are not ONNX: use fakequant export --format "
      "{}",
      engine.name, engine.format);
  FQ_CHECK(made_for != Target::ort_dynamic || options_.target == Target::ort, "export_onnx",
           "the model was quantized for the target ort_dynamic, but {} does not support dynamic ranges: "
           "quantize and calibrate it for {}",
           name(options_.target), name(options_.target));
  FQ_CHECK(made_for != Target::ort || options_.target == Target::ort, "export_onnx",
           "the model was quantized for the target ort, whose unsigned codes tensorrt does not support: "
           "quantize and "
           "calibrate it for tensorrt");
}

// Inputs and outputs of the graph.

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

OnnxModel Exporting::run() {
  // Reserves the name of the graph's output before any node can take it.
  graph_.free_tensor_name("output");
  add_inputs();
  for (const auto& call : calls_.list) emit(call);
  add_ends();
  if (options_.target == Target::ort) {
    // The order matters: `write_integer_convolutions` needs sums with one kind of reader, and
    // `separate_weights` the final products.
    split_sums(graph_);
    write_integer_convolutions(graph_);
    separate_weights(graph_);
  }
  OnnxModel& model = graph_.model;
  FQ_CHECK(options_.opset == 0 || (options_.opset >= model.opset && options_.opset <= kNewestOpset),
           "export_onnx", "the graph needs opset {} to {}: {} was given", model.opset, kNewestOpset,
           options_.opset);
  model.opset = std::max<std::int64_t>(model.opset, options_.opset);
  model.ir_version = ir_version(model.opset);
  model.producer = "fakequant";
  model.graph_name = model_.type();
  return std::move(model);
}

void Exporting::check() const {
  for (const auto& call : calls_.list) {
    if (call.op == "input_part") continue;
    if (call.op != "quantize") {
      if (!traits(call.op).is_conversion) check_form(call);
    } else if (!is_constant(call.inputs.at(0))) {
      check_grid(call);
    }
  }
}

void Exporting::check_form(const Call& call) {
  FQ_CHECK(has_form(call.op), "export_onnx", "'{}' calls the operator {}, which cannot be exported to ONNX",
           call.path, call.op);
}

void Exporting::emit(const Call& call) {
  if (call.op == "input_part") return;
  if (call.op == "quantize") return quantize(call);
  if (traits(call.op).is_conversion) return alias(call);
  check_form(call);
  emit_operator(*this, call);
}

// Names are given in the order of the calls, before nodes are written, as `predict --codes` gives them.
void Exporting::name_codes() {
  CodeNames names;
  for (const auto& call : calls_.list) {
    if (call.op != "quantize" || is_constant(call.inputs.at(0))) continue;
    const std::string& quantizer = call.output.quantized()->grid.name;
    code_names_[&call] = names.of(quantizer, node_name(call));
  }
}

const TensorQuantizer& Exporting::find_quantizer(const std::string& path) const {
  const auto* found = dynamic_cast<const TensorQuantizer*>(&model_.at(path));
  FQ_CHECK(found != nullptr, "export_onnx", "'{}' is no quantizer", path);
  return *found;
}

void Exporting::node(const Call& call, std::string op, std::vector<std::string> inputs,
                     GraphBuilder::Attributes attributes) {
  give(call, graph_.add(std::move(op), node_name(call), std::move(inputs), std::move(attributes)));
}

std::string Exporting::batch() {
  if (!batch_.empty()) return batch_;
  // The batch is unknown until the graph runs, so the graph itself computes it.
  const std::string shape = graph_.add("Shape", "batch.shape", {graph_.model.inputs.at(0).name});
  const std::string first = graph_.constant("batch.axis", Tensor::from<std::int64_t>({0}, {1}));
  return batch_ = graph_.add("Gather", "batch", {shape, first}, {{"axis", std::int64_t{0}}});
}

}  // namespace detail

OnnxModel export_onnx(Module& model, const Shape& sample, const OnnxExportOptions& options) {
  const detail::OnHost host(model);
  return detail::Exporting(model, sample, options).run();
}

void check_onnx_export(Module& model, const Shape& sample, const OnnxExportOptions& options) {
  const detail::OnHost host(model);
  detail::Exporting(model, sample, options).check();
}

}  // namespace fq
