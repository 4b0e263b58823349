#include "fakequant/export/onnx/import.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "fakequant/core/detail/check.h"
#include "fakequant/export/onnx/reader/fold.h"
#include "fakequant/export/onnx/reader/fold_moves.h"
#include "fakequant/export/onnx/reader/graph_view.h"
#include "fakequant/export/onnx/reader/input.h"
#include "fakequant/export/onnx/reader/live_nodes.h"
#include "fakequant/export/onnx/reader/missing.h"
#include "fakequant/export/onnx/reader/node_names.h"
#include "fakequant/export/onnx/reader/op_import.h"
#include "fakequant/train/loop/checkpoint.h"

namespace fq {
namespace {

using namespace detail;

constexpr std::int64_t kSmallGraph = std::int64_t{1} << 22;  // elements that any file may make

std::int64_t elements_of(const OnnxModel& model) {
  std::int64_t count = 0;
  for (const auto& initializer : model.initializers) count += initializer.value.numel();
  return count;
}

/// How many elements the file gives leave to make: of values that are computed, and of parameters.
std::int64_t element_limit(const OnnxModel& model) { return 4 * elements_of(model) + kSmallGraph; }

/// What does not depend on the input, by name.
class FixedValues {
 public:
  explicit FixedValues(const OnnxModel& model) : budget_{element_limit(model)} {
    for (const auto& initializer : model.initializers)
      add(initializer.name, initializer.value, is_learnable(initializer.value));
  }

  /// An input of the network that is the same for every sample: its shape has the batch all the same.
  void add_input(const std::string& name, const GraphInputs::Fixed& input) {
    add(name, input.value, false);
    batch_shapes_.emplace(name, input.of_batch);
  }

  [[nodiscard]] const Constants& values() const noexcept { return values_; }
  [[nodiscard]] const Tensor* find(const std::string& name) const {
    const auto found = values_.find(name);
    return found == values_.end() ? nullptr : &found->second;
  }
  /// Whether a value is one that training found, or was made of such.
  [[nodiscard]] bool is_learned(const std::string& name) const { return learned_.contains(name); }
  void add(const std::string& name, const Tensor& value, bool learned) {
    values_.emplace(name, value);
    if (learned) learned_.insert(name);
  }
  /// Whether the node's inputs are fixed and what it gives is now known.
  bool fold_node(const OnnxNode& node) {
    std::vector<Tensor> inputs;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const Tensor* value = find(node.inputs[i]);
      const bool type_alone = i == 1 && node.op == "CastLike";
      if (value == nullptr && !node.inputs[i].empty() && !type_alone) return false;
      inputs.push_back(value == nullptr ? Tensor() : *value);
    }
    if (node.outputs.empty() || is_of_samples(node, inputs)) return false;
    if (const auto input = batch_shapes_.find(node.inputs.empty() ? "" : node.inputs[0]);
        node.op == "Shape" && input != batch_shapes_.end()) {
      add(node.outputs[0], shape_tensor(NodeReader(node), input->second), false);
      return true;
    }
    const bool learned = std::ranges::any_of(node.inputs, [&](const auto& name) { return is_learned(name); });
    if (node.op == "Split" && node.domain.empty()) {
      const NodeReader reader(node);
      const auto parts = fold_split({reader, inputs, budget_}, node.outputs.size());
      for (std::size_t i = 0; i < parts.size(); ++i)
        if (!node.outputs[i].empty()) add(node.outputs[i], parts[i], learned);
      return true;
    }
    const auto value = fold(NodeReader(node), inputs, budget_);
    if (value) add(node.outputs[0], *value, learned && is_floating(value->dtype()));
    return value.has_value();
  }

 private:
  /// Whether it repeats something for each sample: layers do that.
  static bool is_of_samples(const OnnxNode& node, const std::vector<Tensor>& inputs) {
    const bool of_shape = node.op == "ConstantOfShape", expands = node.op == "Expand" || node.op == "Tile";
    const std::size_t at = of_shape ? 0 : 1;
    if ((!of_shape && !expands) || inputs.size() <= at || inputs[at].rank() > 1) return false;
    return batch_axis(inputs[at].to(DType::i64).to_vector<std::int64_t>()) >= 0;
  }

  /// Numbers that a mask, a count or a single constant would not have.
  static bool is_learnable(const Tensor& value) {
    if (!is_floating(value.dtype()) || value.numel() < 2) return false;
    return std::ranges::all_of(value.to(DType::f32).to_vector<float>(),
                               [](float v) { return std::isfinite(v) && std::abs(v) < 1e4F; });
  }

  FoldBudget budget_;
  Constants values_;
  std::map<std::string, Shape> batch_shapes_;
  std::set<std::string> learned_;
};

/// The nodes that count, with what is fixed computed and patterns found.
std::vector<OnnxNode> prepared(const OnnxModel& model, const std::string& output, FixedValues& fixed) {
  auto nodes = live_nodes(model.nodes, output);
  for (const auto& node : nodes) (void)fixed.fold_node(node);
  return live_nodes(with_patterns(nodes, fixed.values()), output);
}

/// Makes layers of nodes, in order.
class Import {
 public:
  Import(const OnnxModel& model, FixedValues& fixed, const NodeNames& names)
      : model_(model), fixed_(fixed), context_{model.opset, -1,    ModelBuilder(element_limit(model)),
                                               {},          names, {}} {}

  void run(const std::vector<OnnxNode>& nodes, const GraphInputs& inputs) {
    const OnnxValueInfo& first = *inputs.own[0].info;
    if (first.has_shape) context_.batch = first.shape[0].size;
    Shape shape{kAbstractBatch};
    shape.insert(shape.end(), inputs.sample.begin(), inputs.sample.end());
    context_.input = {.node = "input", .shape = shape, .constant = {}, .whole = is_whole(first)};
    if (inputs.own.size() == 1)
      values_.emplace(first.name, context_.input);
    else
      take_parts(inputs.own);
    for (const auto& node : nodes) build(node);
    missing_.check();
  }

  ImportedModel finish(const std::string& name, const Shape& sample, const std::string& model_name) {
    const auto found = values_.find(name);
    FQ_CHECK(found != values_.end(), "import_onnx", "the output '{}' does not depend on the input",
             name.substr(0, 100));
    ImportValue output = found->second;
    if (output.node == "input" || parts_.contains(output.node)) {
      const OnnxNode same{"Identity", name, {}, {}, {}, {}};
      output = context_.model.add(NodeReader(same), "identity", "identity", {}, {output}, {});
    }
    FQ_CHECK(!output.shape.empty() && output.shape[0] == kAbstractBatch, "import_onnx",
             "the output '{}' is {}: its first axis must be the batch", name.substr(0, 100),
             with_readable_batch(to_string(output.shape)));
    auto built = context_.model.finish(model_name, output);
    return {ModelSpec::parse(built.text),
            sample,
            Shape(output.shape.begin() + 1, output.shape.end()),
            std::move(built.state),
            {context_.recognised.begin(), context_.recognised.end()}};
  }

 private:
  static bool is_whole(const OnnxValueInfo& input) {
    return input.kind == OnnxKind::boolean || !is_floating(input.dtype);
  }

  /// Each input is a part of the rows of the data.
  void take_parts(const std::vector<GraphInputs::Own>& parts) {
    context_.input.whole = false;
    std::int64_t begin = 0;
    for (const auto& [info, sample] : parts) {
      const OnnxNode node{"Input", info->name, {}, {}, {}, {}};
      nlohmann::ordered_json options{{"begin", begin}};
      if (!sample.empty()) options["shape"] = sample;
      options.update({{"name", info->name}, {"type", part_type(*info)}});
      ImportValue value = context_.model.add(NodeReader(node), legal_name(info->name), "input_part",
                                             std::move(options), {context_.input}, {});
      value.whole = is_whole(*info);
      parts_.insert(value.node);
      values_.emplace(info->name, std::move(value));
      begin += numel(sample);
    }
  }

  /// What cannot be built is kept, with a guess of what it gives, so that all of it is told at once.
  void build(const OnnxNode& node) {
    try {
      if (node.outputs.empty() || fixed_.find(node.outputs[0]) != nullptr || fixed_.fold_node(node)) return;
      if (const OnnxBranch* way = taken(node); way != nullptr) return follow(node, *way);
      const auto builder = find_op_builder(node);
      if (builder == nullptr) throw UnsupportedUse{operator_name(node)};
      auto inputs = inputs_of(node);
      if (inputs.size() != node.inputs.size()) return;
      const OpImport op(node, std::move(inputs), context_);
      keep(node, node.outputs[0], builder(op));
      for (const auto& [output, value] : op.more())
        if (output < node.outputs.size()) keep(node, node.outputs[output], value);
    } catch (const UnsupportedUse& use) {
      missing_.add(node, use.what);
      guess(node);
    } catch (const ArgumentError& error) {
      if (!reads_guess(node)) missing_.add_error(error.what());
      guess(node);
    }
  }

  /// The branch of an If whose condition is fixed; null otherwise.
  [[nodiscard]] const OnnxBranch* taken(const OnnxNode& node) const {
    const Tensor* condition =
        node.branches.empty() || node.inputs.size() != 1 ? nullptr : fixed_.find(node.inputs[0]);
    if (condition == nullptr || condition->numel() != 1) return nullptr;
    const auto way = std::ranges::find(node.branches, condition->item() != 0 ? "then_branch" : "else_branch",
                                       &OnnxBranch::name);
    return way == node.branches.end() || way->outputs.size() != node.outputs.size() ? nullptr : &*way;
  }

  void follow(const OnnxNode& node, const OnnxBranch& way) {
    for (const auto& value : way.initializers) fixed_.add(value.name, value.value, false);
    for (const auto& inner : way.nodes) build(inner);
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      if (const Tensor* constant = fixed_.find(way.outputs[i]); constant != nullptr)
        fixed_.add(node.outputs[i], *constant, fixed_.is_learned(way.outputs[i]));
      else if (const auto value = values_.find(way.outputs[i]); value != values_.end())
        keep(node, node.outputs[i], value->second);
    }
  }

  void keep(const OnnxNode& node, const std::string& name, ImportValue value) {
    if (value.is_constant()) return fixed_.add(name, value.constant, false);
    values_.emplace(name, std::move(value));
    if (reads_guess(node)) guessed_.insert(name);
  }

  [[nodiscard]] bool reads_guess(const OnnxNode& node) const {
    return std::ranges::any_of(node.inputs, [&](const auto& name) { return guessed_.contains(name); });
  }

  /// Outputs of a node that cannot be built: of the shape that the file states, or of its input's.
  void guess(const OnnxNode& node) {
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

  [[nodiscard]] std::optional<Shape> stated_shape(const std::string& name) const {
    const auto stated = std::ranges::find(model_.values, name, &OnnxValueInfo::name);
    if (stated == model_.values.end() || !stated->has_shape || stated->shape.empty()) return std::nullopt;
    Shape shape{kAbstractBatch};
    for (std::size_t axis = 1; axis < stated->shape.size(); ++axis) shape.push_back(stated->shape[axis].size);
    if (std::ranges::any_of(shape, [](auto size) { return size <= 0 || size > kLargestSize; }))
      return std::nullopt;
    return shape;
  }

  /// Fewer than the node's where an error left one unknown.
  std::vector<ImportValue> inputs_of(const OnnxNode& node) const {
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

  const OnnxModel& model_;
  FixedValues& fixed_;
  ImportContext context_;
  std::unordered_map<std::string, ImportValue> values_;
  std::set<std::string> parts_;    // layers that are inputs
  std::set<std::string> guessed_;  // values whose shape is not known
  bool failed_ = false;
  MissingNodes missing_;
};

}  // namespace

ImportedModel import_onnx(const OnnxModel& model, const ImportOptions& options) {
  const std::string& output = output_of(model, options.output);
  const GraphInputs inputs = inputs_of(model, live_nodes(model.nodes, output), output, options);
  FixedValues fixed(model);
  for (const auto& [name, input] : inputs.fixed) fixed.add_input(name, input);
  const auto nodes = prepared(model, output, fixed);
  const NodeNames names(nodes);
  Import import(model, fixed, names);
  import.run(nodes, inputs);
  return import.finish(output, inputs.sample, options.name);
}

std::shared_ptr<Graph> ImportedModel::build() const {
  auto graph = build_model(spec, sample_shape);
  load_model_state(*graph, state, spec.name());
  return graph;
}

}  // namespace fq
