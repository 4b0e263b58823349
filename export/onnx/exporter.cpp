#include "fakequant/export/onnx/exporter.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/operators.h"
#include "fakequant/core/ops/shape.h"
#include "fakequant/export/onnx/writer/exporting.h"
#include "fakequant/export/onnx/writer/grids.h"
#include "fakequant/export/onnx/writer/split_sums.h"
#include "fakequant/export/onnx/writer/weights.h"
#include "fakequant/layers/detail/placement.h"
#include "fakequant/layers/quantize.h"

namespace fq {
namespace detail {
namespace {

constexpr int kNewestOpset = 24;

/// The first version of the file format that has that operator set.
int ir_version(int opset) {
  return opset <= 13 ? 7 : opset <= 18 ? 8 : opset <= 20 ? 9 : opset <= 22 ? 10 : opset <= 23 ? 11 : 12;
}

}  // namespace

Exporting::Exporting(Module& model, const Shape& sample, const OnnxExportOptions& options)
    : model_(model),
      options_(options),
      names_(model),
      calls_((check_model(), record_open_calls(model, sample))),
      early_(calls_, options.target == Target::ort) {
  for (std::size_t i = 0; i < calls_.list.size(); ++i) open_shapes_[&calls_.list[i]] = calls_.open_shape(i);
  for (const auto& entry : named_quantizers(model)) quantizers_[entry.quantizer->name()] = entry.quantizer;
  for (const auto& [name, value] : model.named_parameters()) parameters_[value.node().get()] = name;
  name_codes();
}

void Exporting::check_model() const {
  const auto missing = uncalibrated_quantizers(model_);
  FQ_CHECK(missing.empty(), "export_onnx", "{} quantizers have no amax: calibrate {}", missing.size(),
           fmt::join(missing, ", "));
  const Target made_for = target_of(model_);
  FQ_CHECK(
      made_for != Target::ort || options_.target == Target::ort, "export_onnx",
      "the model was quantized for the target ort, whose unsigned codes tensorrt does not take: quantize and "
      "calibrate it for tensorrt");
}

OnnxModel Exporting::run() {
  graph_.free_tensor_name("input");
  graph_.free_tensor_name("output");
  values_[calls_.input.node().get()].floats = "input";
  for (const auto& call : calls_.list) emit(call);
  add_ends();
  if (options_.target == Target::ort) split_sums(graph_);
  OnnxModel& model = graph_.model;
  FQ_CHECK(options_.opset == 0 || (options_.opset >= model.opset && options_.opset <= kNewestOpset),
           "export_onnx", "the graph needs operator set {} or newer, up to {}: {} was asked for", model.opset,
           kNewestOpset, options_.opset);
  model.opset = std::max(model.opset, options_.opset);
  model.ir_version = ir_version(model.opset);
  model.producer = "fakequant";
  model.graph_name = model_.type();
  return std::move(model);
}

void Exporting::emit(const Call& call) {
  if (call.op == "quantize") return quantize(call);
  if (traits(call.op).is_conversion) return alias(call);
  FQ_CHECK(emit_operator(*this, call), "export_onnx",
           "'{}' calls the operator {}, which has no form in ONNX here", call.path, call.op);
}

void Exporting::name_codes() {
  CodeNames names;
  for (const auto& call : calls_.list) {
    if (call.op != "quantize" || is_constant(call.inputs.at(0))) continue;
    const std::string& quantizer = call.output.quantized()->spec.name;
    code_names_[&call] = names.of(quantizer, node_name(call));
  }
}

const TensorQuantizer& Exporting::quantizer_at(const std::string& path) const {
  const auto* found = dynamic_cast<const TensorQuantizer*>(&model_.at(path));
  FQ_CHECK(found != nullptr, "export_onnx", "'{}' is no quantizer", path);
  return *found;
}

/// The real codes of a parameter: the trace has only their shape.
QuantizedTensor Exporting::codes_of(const Call& call) const {
  const NoGrad no_grad;
  const Variable& input = call.inputs.at(0);
  const QuantSpec& spec = call.output.quantized()->spec;
  const auto found = quantizers_.find(spec.name);
  const Variable codes =
      found != quantizers_.end() ? found->second->weight(input) : ops::quantize(input, spec);
  FQ_CHECK(codes.quantized() != nullptr, "export_onnx", "'{}' gives no codes", spec.name);
  return *codes.quantized();
}

void Exporting::quantize(const Call& call) {
  Value& out = values_[call.output.node().get()];
  const Variable& input = call.inputs.at(0);
  if (is_constant(input)) {
    out.codes = codes_of(call);
    return;
  }
  const QuantSpec& spec = call.output.quantized()->spec;
  if (const auto found = quantizers_.find(spec.name); found != quantizers_.end())
    FQ_CHECK(!found->second->descriptor().dynamic() && !found->second->descriptor().has_dynamic_blocks(),
             "export_onnx",
             "'{}' takes its range from each input: QuantizeLinear has constants, calibrate a static range",
             call.path);
  const Value& from = values_.at(input.node().get());
  const std::string& codes = code_names_.at(&call);
  if (from.grid != nullptr && same_grid(*from.grid, spec) && from.grid_codes == codes)
    out = from;
  else if (!from.rows.empty() && from.grid == nullptr)
    put_rows(call, from.rows, spec, false);
  else
    put(call, floats(input), spec, false);
}

void Exporting::alias(const Call& call) {
  const Variable& input = call.inputs.at(0);
  if (is_constant(input)) (void)floats(input);
  values_[call.output.node().get()] = values_.at(input.node().get());
}

std::string Exporting::codes_name(const Call& call, const QuantSpec& grid) const {
  if (call.op == "quantize") return code_names_.at(&call);
  const auto& readers = early_.readers(call.output);
  const auto direct = std::ranges::find(readers, "quantize", &Call::op);
  return call.output.quantized() == nullptr && direct != readers.end() ? code_names_.at(*direct)
                                                                       : grid.name + ".at." + node_name(call);
}

void Exporting::put(const Call& call, std::string floats, const QuantSpec& grid, bool cut) {
  const std::string codes = codes_name(call, grid);
  Value& out = values_[call.output.node().get()];
  out.floats =
      add_grid(graph_, options_, {std::move(floats), call.output.rank(), grid, node_name(call), codes, cut});
  out.grid = &grid;
  out.grid_codes = codes;
  out.cut = cut || (grid.format.is_integer() && grid.format.integer().is_unsigned);
}

std::string Exporting::unrolled(const Call& maker, const std::string& matrix) {
  const Shape shape = open_shapes_.at(&maker);
  const auto sizes = Tensor::from<std::int64_t>(shape, {static_cast<std::int64_t>(shape.size())});
  const std::string name = node_name(maker) + ".unrolled";
  return graph_.add("Reshape", name, {matrix, graph_.constant(name + ".shape", sizes)});
}

/// Engines move codes in a reshape that has the same grid on both sides.
void Exporting::put_rows(const Call& call, const std::string& matrix, const QuantSpec& grid, bool cut) {
  const std::string codes = codes_name(call, grid);
  const std::string rows =
      add_grid(graph_, options_, {matrix, 2, grid, node_name(call), codes + ".rows", cut});
  put(call, unrolled(call, rows), grid, false);
  Value& out = values_[call.output.node().get()];
  out.rows = rows;
  out.cut = out.cut || cut;
}

void Exporting::give(const Call& call, std::string name) {
  const QuantizedTensor* codes = call.output.quantized();
  const QuantSpec* early = early_.early_grid_of(call.output);
  if (codes != nullptr || early != nullptr)
    return put(call, std::move(name), codes != nullptr ? codes->spec : *early,
               codes == nullptr && early_.is_cut(call.output));
  values_[call.output.node().get()].floats = std::move(name);
}

void Exporting::give_rows(const Call& call, std::string matrix) {
  if (const QuantSpec* early = early_.early_grid_of(call.output))
    return put_rows(call, matrix, *early, early_.is_cut(call.output));
  Value& out = values_[call.output.node().get()];
  out.rows = std::move(matrix);
  out.maker = &call;
}

std::string Exporting::rows(const Call& call, std::size_t i) {
  const Variable& input = call.inputs.at(i);
  Value& value = values_.at(input.node().get());
  if (!value.rows.empty()) return value.rows;
  const QuantSpec& grid = input.quantized()->spec;
  const std::string name = node_name(call) + ".rows";
  const auto sizes = Tensor::from<std::int64_t>({-1, input.shape().back()}, {2});
  const std::string matrix =
      graph_.add("Reshape", name, {floats(input), graph_.constant(name + ".shape", sizes)});
  return value.rows =
             add_grid(graph_, options_, {matrix, 2, grid, node_name(call), grid.name + ".at." + name});
}

bool Exporting::give_relu(const Call& call) {
  const Value from = values_.at(call.inputs.at(0).node().get());
  const QuantSpec* grid = early_.grid_of(call.output);
  const bool on_codes = options_.target == Target::ort && grid != nullptr && has_byte_codes(grid->format);
  const bool rows = !from.rows.empty() && from.grid == nullptr;
  const bool is_signed = on_codes && !grid->format.integer().is_unsigned;
  if (on_codes && (is_signed || (from.grid != nullptr && from.cut))) {
    if (rows)
      put_rows(call, from.rows, *grid, true);
    else
      put(call, floats(call.inputs[0]), *grid, !from.cut);
    return true;
  }
  if (rows) give_rows(call, graph_.add("Relu", node_name(call), {from.rows}));
  return rows;
}

void Exporting::node(const Call& call, std::string op, std::vector<std::string> inputs,
                     GraphBuilder::Attributes attributes) {
  give(call, graph_.add(std::move(op), node_name(call), std::move(inputs), std::move(attributes)));
}

std::string Exporting::batch() {
  if (!batch_.empty()) return batch_;
  const std::string shape = graph_.add("Shape", "batch.shape", {floats(calls_.input)});
  const std::string first = graph_.constant("batch.axis", Tensor::from<std::int64_t>({0}, {1}));
  return batch_ = graph_.add("Gather", "batch", {shape, first}, {{"axis", std::int64_t{0}}});
}

const QuantizedTensor* Exporting::constant_codes(const Variable& value) const {
  const auto found = values_.find(value.node().get());
  return found == values_.end() || !found->second.codes ? nullptr : &*found->second.codes;
}

std::string Exporting::name_of(const Variable& value, const std::string& otherwise) const {
  const auto found = parameters_.find(value.node().get());
  return found == parameters_.end() ? otherwise : found->second;
}

bool Exporting::is_integer_factor(const Variable& weight) const {
  return std::ranges::any_of(early_.readers(weight),
                             [](const Call* reader) { return reader->output.accumulator() != nullptr; });
}

std::string Exporting::add_constant(const Variable& value, Value& known, Form form) {
  const bool transposed = form == Form::transposed;
  if (known.codes) {
    std::string name = known.codes->spec.name;
    if (name.ends_with("_quantizer")) name.erase(name.size() - std::string_view("_quantizer").size());
    return add_weight(graph_, options_, name, *known.codes, {transposed, is_integer_factor(value)});
  }
  const Tensor floats = value.tensor();
  return graph_.constant(name_of(value, "constant"), transposed
                                                         ? ops::transpose(Variable(floats), {1, 0}).tensor()
                                                         : floats.to(Layout::row_major));
}

std::string Exporting::floats(const Variable& value, Form form) {
  Value& known = values_[value.node().get()];
  std::string& name = form == Form::as_is ? known.floats : known.transposed;
  if (!name.empty()) return name;
  if (known.maker != nullptr) known.floats = unrolled(*known.maker, known.rows);
  if (!name.empty()) return name;
  if (form == Form::transposed && !known.floats.empty() && !known.codes && !value.is_leaf())
    return name = graph_.add("Transpose", known.floats + ".transposed", {known.floats},
                             {{"perm", std::vector<std::int64_t>{1, 0}}});
  return name = add_constant(value, known, form);
}

std::string Exporting::put_on_grid(const Call& call, const Variable& input, QuantSpec spec) {
  const Value* from = values_.contains(input.node().get()) ? &values_.at(input.node().get()) : nullptr;
  if (from == nullptr || (from->floats.empty() && input.is_leaf())) {
    const NoGrad no_grad;
    return add_weight(graph_, options_, name_of(input, node_name(call)),
                      fq::quantize(input.tensor(), spec, false), {});
  }
  return add_grid(graph_, options_, {floats(input), input.rank(), spec, node_name(call), node_name(call)});
}

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
    return traits(reader->op).keeps_codes && reader->op != "max_pool2d" && is_ids(reader->output);
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

}  // namespace detail

OnnxModel export_onnx(Module& model, const Shape& sample, const OnnxExportOptions& options) {
  return detail::Exporting(model, sample, options).run();
}

}  // namespace fq
