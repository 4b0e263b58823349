#include "fakequant/export/onnx/import.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "fakequant/core/detail/check.h"
#include "fakequant/export/onnx/import_quantized.h"
#include "fakequant/export/onnx/reader/element_types.h"
#include "fakequant/export/onnx/reader/folding/fold.h"
#include "fakequant/export/onnx/reader/op_import.h"
#include "fakequant/export/onnx/reader/operator_checks.h"
#include "fakequant/export/onnx/reader/patterns/graph_view.h"
#include "fakequant/export/onnx/reader/quantized/pair_graph.h"
#include "fakequant/export/onnx/reader/quantized/placed_grids.h"
#include "fakequant/layers/model/detail/symbolic_batch.h"
#include "fakequant/train/loop/checkpoint.h"

namespace fq::detail {
namespace {

/// Adds the node's name to a message without one.
std::string node_error(const OnnxNode& node, const std::string& message) {
  if (message.starts_with("[import_onnx] node ")) return message;
  try {
    NodeReader(node).fail("{}", message.starts_with("[import_onnx] ") ? message.substr(14) : message);
  } catch (const ArgumentError& named) {
    return show_batch_symbol(named.what());
  }
}

/// Builds layers from nodes, in order.
class GraphImport {
 public:
  /// Keeps references to its arguments.
  GraphImport(const OnnxModel& model, FixedValues& fixed, const NodeNames& names, const ElementTypes& types)
      : model_(model), fixed_(fixed), context_{static_cast<int>(model.opset),
                                               -1,
                                               ModelBuilder(element_limit(model)),
                                               {},
                                               names,
                                               types,
                                               {}} {}

  /// Builds all nodes. Throws one ArgumentError that lists the nodes that cannot be built.
  void run(const std::vector<OnnxNode>& nodes, const GraphInputs& inputs);
  /// Returns the layers that `run` made, up to the value `name`.
  [[nodiscard]] ImportedModel finish(const std::string& name, const Shape& sample,
                                     const std::string& model_name);

 private:
  /// Adds a layer "input_part" for each input.
  void take_parts(const std::vector<GraphInputs::Own>& parts);
  /// Builds the layers of a node. Records a node that cannot be built and guesses its output, so that one
  /// error lists all of them.
  void build(const OnnxNode& node);
  /// Returns the branch of an If with a constant condition, else null.
  [[nodiscard]] const OnnxBranch* taken(const OnnxNode& node) const;
  void follow(const OnnxNode& node, const OnnxBranch& way);
  void keep(const OnnxNode& node, const std::string& name, ImportValue value);
  [[nodiscard]] bool reads_guess(const OnnxNode& node) const;
  /// Guesses the outputs of a node that cannot be built: the shape in the file, or the shape of its input.
  void guess(const OnnxNode& node);
  [[nodiscard]] std::optional<Shape> stated_shape(const std::string& name) const;
  /// Returns the inputs of a node. Shorter than the node's list if an error left an input unknown.
  [[nodiscard]] std::vector<ImportValue> resolve_inputs(const OnnxNode& node) const;

  const OnnxModel& model_;
  FixedValues& fixed_;
  ImportContext context_;
  std::unordered_map<std::string, ImportValue> values_;
  std::set<std::string> parts_;    // layers "input_part"
  std::set<std::string> guessed_;  // values of unknown shape
  bool failed_ = false;
  int depth_ = 0;  // nesting depth of the current node's branches
  MissingNodes missing_;
};

void GraphImport::run(const std::vector<OnnxNode>& nodes, const GraphInputs& inputs) {
  const OnnxValueInfo& first = *inputs.own[0].info;
  if (first.has_shape) context_.batch = first.shape[0].size;
  context_.input = {.node = "input", .shape = add_symbolic_batch(inputs.sample), .constant = {}};
  if (inputs.own.size() == 1 && !inputs.own[0].sample.empty())
    values_.emplace(first.name, context_.input);
  else
    take_parts(inputs.own);
  for (const auto& node : nodes) build(node);
  missing_.check();
}

ImportedModel GraphImport::finish(const std::string& name, const Shape& sample,
                                  const std::string& model_name) {
  const auto found = values_.find(name);
  FQ_CHECK(found != values_.end(), "import_onnx", "the output '{}' does not depend on the input",
           name.substr(0, 100));
  ImportValue output = found->second;
  FQ_CHECK(!output.is_empty(), "import_onnx", "the output '{}' is {}: it has no elements",
           name.substr(0, 100), batch_text(output.shape));
  if (output.node == "input" || parts_.contains(output.node)) {
    // A network needs at least one layer, also if it returns its input.
    const OnnxNode same{"Identity", name, {}, {}, {}, {}};
    output = context_.model.add(NodeReader(same), "identity", "identity", {}, {output}, {});
  }
  FQ_CHECK(!output.shape.empty() && output.shape[0] == kSymbolicBatch, "import_onnx",
           "the output '{}' is {}: its first axis must be the batch", name.substr(0, 100),
           batch_text(output.shape));
  auto built = context_.model.finish(model_name, output);
  return {std::move(built.spec),
          sample,
          Shape(output.shape.begin() + 1, output.shape.end()),
          std::move(built.state),
          {context_.recognised.begin(), context_.recognised.end()}};
}

void GraphImport::take_parts(const std::vector<GraphInputs::Own>& parts) {
  std::int64_t begin = 0;
  for (const auto& [info, sample] : parts) {
    const OnnxNode node{"Input", info->name, {}, {}, {}, {}};
    NodeOptions options{{"begin", begin}};
    if (!sample.empty()) options["shape"] = sample;
    options["name"] = info->name;
    options["type"] = part_type(*info);
    ImportValue value = context_.model.add(NodeReader(node), legal_name(info->name), "input_part",
                                           std::move(options), {context_.input}, {});
    parts_.insert(value.node);
    values_.emplace(info->name, std::move(value));
    begin += numel(sample);
  }
}

void GraphImport::build(const OnnxNode& node) {
  try {
    // `check_operators` has checked the nodes of the graph, but not the nodes of branches.
    if (depth_ > 0) check_operator(node, context_.opset);
    if (node.outputs.empty() || fixed_.find(node.outputs[0]) != nullptr || fixed_.fold_node(node)) return;
    if (const OnnxBranch* way = taken(node); way != nullptr) return follow(node, *way);
    const auto builder = find_op_builder(node);
    if (builder == nullptr) throw UnsupportedUse{operator_name(node)};
    auto inputs = resolve_inputs(node);
    // An input is unknown because of an earlier error, which is listed already.
    if (inputs.size() != node.inputs.size()) return;
    const OpImport op(node, std::move(inputs), context_);
    keep(node, node.outputs[0], builder(op));
    for (const auto& [output, value] : op.more())
      if (output < node.outputs.size()) keep(node, node.outputs[output], value);
  } catch (const UnsupportedUse& use) {
    missing_.add(node, use.what);
    guess(node);
  } catch (const ArgumentError& error) {
    // An error in a node that reads a guessed shape may only be a consequence of the guess.
    if (!reads_guess(node)) missing_.add_error(node_error(node, error.what()));
    guess(node);
  }
}

const OnnxBranch* GraphImport::taken(const OnnxNode& node) const {
  const Tensor* condition =
      node.branches.empty() || node.inputs.size() != 1 ? nullptr : fixed_.find(node.inputs[0]);
  if (condition == nullptr || condition->numel() != 1) return nullptr;
  const auto way = std::ranges::find(node.branches, condition->item() != 0 ? "then_branch" : "else_branch",
                                     &OnnxBranch::name);
  return way == node.branches.end() || way->outputs.size() != node.outputs.size() ? nullptr : &*way;
}

void GraphImport::follow(const OnnxNode& node, const OnnxBranch& way) {
  for (const auto& value : way.initializers) fixed_.add(value.name, value.value, false);
  ++depth_;
  for (const auto& inner : way.nodes) build(inner);
  --depth_;
  for (std::size_t i = 0; i < node.outputs.size(); ++i) {
    if (const Tensor* constant = fixed_.find(way.outputs[i]); constant != nullptr)
      fixed_.add(node.outputs[i], *constant, fixed_.is_learned(way.outputs[i]));
    else if (const auto value = values_.find(way.outputs[i]); value != values_.end())
      keep(node, node.outputs[i], value->second);
  }
}

void GraphImport::keep(const OnnxNode& node, const std::string& name, ImportValue value) {
  // Shape and similar operators return constants of values that are not constant.
  if (value.is_constant()) return fixed_.add(name, value.constant, false);
  values_.emplace(name, std::move(value));
  if (reads_guess(node)) guessed_.insert(name);
}

bool GraphImport::reads_guess(const OnnxNode& node) const {
  return std::ranges::any_of(node.inputs, [&](const auto& name) { return guessed_.contains(name); });
}

void GraphImport::guess(const OnnxNode& node) {
  failed_ = true;
  const auto input =
      std::ranges::find_if(node.inputs, [&](const auto& name) { return values_.contains(name); });
  if (input == node.inputs.end()) return;
  const ImportValue like = values_.at(*input);
  for (const auto& name : node.outputs) {
    if (name.empty()) continue;
    values_.emplace(
        name,
        ImportValue{.node = like.node, .shape = stated_shape(name).value_or(like.shape), .constant = {}});
    guessed_.insert(name);
  }
}

std::optional<Shape> GraphImport::stated_shape(const std::string& name) const {
  const auto stated = std::ranges::find(model_.values, name, &OnnxValueInfo::name);
  if (stated == model_.values.end() || !stated->has_shape || stated->shape.empty()) return std::nullopt;
  Shape shape{kSymbolicBatch};
  for (std::size_t axis = 1; axis < stated->shape.size(); ++axis) shape.push_back(stated->shape[axis].size);
  if (std::ranges::any_of(shape, [](auto size) { return size <= 0 || size > kLargestSize; }))
    return std::nullopt;
  return shape;
}

std::vector<ImportValue> GraphImport::resolve_inputs(const OnnxNode& node) const {
  std::vector<ImportValue> out;
  for (const auto& name : node.inputs) {
    const auto value = values_.find(name);
    if (value != values_.end())
      out.push_back(value->second);
    else if (const Tensor* constant = fixed_.find(name); constant != nullptr)
      out.push_back({.node = {}, .shape = {}, .constant = *constant, .learned = fixed_.is_learned(name)});
    else if (name.empty())
      out.emplace_back();
    else if (!failed_)
      NodeReader(node).fail("it reads '{}', which is not a first output of a supported operator",
                            name.substr(0, 100));
  }
  return out;
}

}  // namespace
}  // namespace fq::detail

namespace fq {
namespace {

using namespace detail;

/// Returns the nodes that the output needs. Fixed values are computed and patterns are replaced.
std::vector<OnnxNode> prepared(const OnnxModel& model, const ElementTypes& types, const std::string& output,
                               FixedValues& fixed) {
  auto nodes = live_nodes(with_casts(model.nodes, types), output);
  // Patterns compare constants, so folding comes first. Unread parts of replaced chains are removed last.
  for (const auto& node : nodes) (void)fixed.fold_node(node);
  return live_nodes(replace_patterns(nodes, fixed.values()), output);
}

/// Imports a graph whose nodes were checked by `check_operators` or created by the reader.
ImportedModel import_checked(const OnnxModel& model, const ImportOptions& options) try {
  const std::string& output = output_name(model, options.output);
  const GraphInputs inputs = resolve_inputs(model, live_nodes(model.nodes, output), output, options);
  FixedValues fixed(model);
  for (const auto& [name, input] : inputs.fixed) fixed.add_input(name, input);
  const ElementTypes types(model);
  const auto nodes = prepared(model, types, output, fixed);
  const NodeNames names(nodes);
  GraphImport import(model, fixed, names, types);
  import.run(nodes, inputs);
  return import.finish(output, inputs.sample, options.name);
} catch (const ArgumentError& error) {
  throw ArgumentError(show_batch_symbol(error.what()));
}

/// Whether all activation codes are signed with zero point 0, and biases are floats.
bool is_for_tensorrt(const Unquantized& file) {
  return !file.integer_bias && !file.grids.empty() && std::ranges::all_of(file.grids, [](const auto& grid) {
    return grid.type == DType::i8 && grid.zero_point == 0;
  });
}

}  // namespace

ImportedModel import_onnx(const OnnxModel& model, const ImportOptions& options) {
  check_operators(model, live_nodes(model.nodes, output_name(model, options.output)));
  return import_checked(model, options);
}

std::shared_ptr<Graph> ImportedModel::build() const {
  auto graph = build_model(spec, sample_shape);
  load_model_state(*graph, state, spec.name());
  return graph;
}

bool is_quantized(const OnnxModel& model) { return has_grids(model); }

QuantizedModel import_quantized_onnx(const OnnxModel& model, const ImportOptions& options) {
  check_operators(model, live_nodes(model.nodes, output_name(model, options.output)));
  const Unquantized file = unquantized(pair_convolutions(model));
  ImportedModel floats = import_checked(file.floats, options);
  const UnmarkedNodes nodes = unmarked(floats.spec.nodes(), file);
  floats.spec = ModelSpec(floats.spec.name(), nodes.nodes);
  auto placed = placed_grids(floats, nodes, file);
  const nlohmann::ordered_json config{{"target", is_for_tensorrt(file) ? "tensorrt" : "ort"},
                                      {"rules", std::move(placed.rules)}};
  return {std::move(floats), {config.dump(), std::move(placed.grids)}};
}

}  // namespace fq
