#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/random.h"
#include "fakequant/core/tape.h"
#include "fakequant/layers/model/detail/layer_registry.h"
#include "fakequant/layers/model/detail/meta_scope.h"
#include "fakequant/layers/model/detail/symbolic_batch.h"
#include "fakequant/layers/model/model_file.h"
#include "fakequant/layers/modules/activation.h"
#include "fakequant/layers/modules/sequential.h"

namespace fq {
namespace {

using detail::kSymbolicBatch;

// Shape without its batch axis, for messages.
std::string sample_text(Shape shape) {
  shape.erase(shape.begin());
  return to_string(shape);
}

/// Builds the modules of nodes. It runs each on `meta` to find the shapes of later inputs.
class Builder {
 public:
  Builder(std::int64_t classes, const BuildOptions& options)
      : classes_(classes), budget_{options.max_elements, 0} {}

  struct Built {
    std::vector<GraphNode> nodes;
    Variable output;
  };
  Built nodes(const ModelNodes& nodes, const Variable& input) {
    Built built;
    // Values on `meta`: only their shapes matter.
    std::unordered_map<std::string, Variable> values{{"input", input}};
    detail::EarlierModules earlier;
    std::string previous = "input";
    for (const ModelNode& node : nodes) {
      GraphNode made{node.name, nullptr, node.inputs};
      if (made.inputs.empty()) made.inputs = {previous};
      std::vector<Variable> inputs;
      for (const auto& name : made.inputs) inputs.push_back(values.at(name));
      std::tie(made.module, built.output) = module(node, inputs, earlier);
      check_size(node, built.output);
      previous = made.name;
      values[previous] = built.output;
      earlier.emplace(previous, made.module);
      built.nodes.push_back(std::move(made));
    }
    return built;
  }

 private:
  using Made = std::pair<std::shared_ptr<Module>, Variable>;

  Made module(const ModelNode& node, const std::vector<Variable>& inputs,
              const detail::EarlierModules& earlier) {
    if (detail::has_nested_nodes(node.type)) return nested(node, inputs);
    std::vector<Shape> shapes;
    for (const auto& input : inputs) shapes.push_back(input.shape());
    try {
      // checked_nodes has rejected unknown types.
      auto made = detail::layer_registry().find(node.type)->second.make(
          LayerOptions(node, shapes, classes_, budget_, &earlier));
      FQ_CHECK(made != nullptr, node.type, "its factory made nothing");
      const detail::MetaScope meta_scope(*made);
      Variable output = inputs.size() == 1 ? (*made)(inputs[0]) : (*made)(inputs);
      if (output.defined() && output.is_leaf()) output = output.detach();  // moves to meta after the scope
      FQ_CHECK(output.defined() && (detail::batch_axis(output.shape()) >= 0 || is_constant(*made, inputs)),
               node.type, "it mixes samples: no axis of its output is the batch");
      if (is_constant(*made, inputs)) constants_.insert(output.node());
      return {std::move(made), std::move(output)};
    } catch (const ArgumentError& error) {
      throw_node_error(node, error);
    }
  }

  /// Whether the output is the same for every batch: a parameter, or a function of parameters.
  [[nodiscard]] bool is_constant(const Module& module, const std::vector<Variable>& inputs) const {
    return dynamic_cast<const Parameter*>(&module) != nullptr ||
           std::ranges::all_of(inputs, [&](const Variable& x) { return constants_.contains(x.node()); });
  }

  Made nested(const ModelNode& node, const std::vector<Variable>& inputs) {
    if (inputs.size() != 1)
      node.place.fail(fmt::format("node '{}' has {} inputs: use one", node.name, inputs.size()));
    auto built = nodes(node.nodes, inputs[0]);
    if (node.type == "graph") return {std::make_shared<Graph>(std::move(built.nodes)), built.output};
    auto sequence = std::make_shared<Sequential>();
    for (auto& inner : built.nodes) sequence->add(std::move(inner.name), std::move(inner.module));
    return {std::move(sequence), built.output};
  }

  /// Adds the place of the node to an error of an operator or a constructor, unless the error already has it.
  [[noreturn]] static void throw_node_error(const ModelNode& node, const ArgumentError& error) {
    const std::string what = error.what();
    // An inner node has placed the error already.
    if (what.starts_with(node.place.origin())) throw error;
    const std::string name = node.place.has_line() ? fmt::format("node '{}': ", node.name) : "";
    node.place.fail(name + detail::show_batch_symbol(what));
  }

  void check_size(const ModelNode& node, const Variable& output) const {
    if (detail::sample_elements(output.shape()) > budget_.limit)
      node.place.fail(fmt::format("the output of '{}' is {} for one sample: {} elements are allowed",
                                  node.name, sample_text(output.shape()), budget_.limit));
  }

  std::int64_t classes_;
  detail::ModelBudget budget_;
  std::unordered_set<std::shared_ptr<detail::Node>> constants_;  // nodes that do not depend on the batch
};

Variable meta_input(const Shape& sample_shape, std::int64_t limit) {
  FQ_CHECK(!sample_shape.empty() && sample_shape.size() <= 8, "build_model",
           "the input {} has {} axes: use the shape of one image, of 1 to 8 axes", to_string(sample_shape),
           sample_shape.size());
  // Divides instead of multiplying, because the product of the sizes may overflow.
  std::int64_t left = limit;
  for (const auto size : sample_shape) left = size > 0 ? left / size : 0;
  FQ_CHECK(left > 0, "build_model", "the input {} is empty or has more than {} elements",
           to_string(sample_shape), limit);
  return Variable(Tensor::empty(detail::add_symbolic_batch(sample_shape), DType::f32, Device::meta()));
}

}  // namespace

std::shared_ptr<Graph> build_model(const ModelSpec& spec, const Shape& sample_shape, std::int64_t classes,
                                   const BuildOptions& options) {
  // Initial weights depend on the seed alone, not on earlier draws of the thread.
  const RandomScope random(options.seed, 0);
  const NoGrad no_grad;
  const auto input = meta_input(sample_shape, options.max_elements);
  auto built = Builder(classes, options).nodes(spec.nodes(), input);
  const NodePlace& end = spec.nodes().back().place;
  if (built.output.shape().empty() || built.output.shape()[0] != kSymbolicBatch)
    end.fail(fmt::format("the model's output is {}: its first axis must be the batch",
                         detail::batch_text(built.output.shape())));
  Shape listed = built.output.shape();
  // Dense labels: [N, classes, ..] with a label per position.
  if (options.dense) listed.resize(std::min<std::size_t>(listed.size(), 2));
  if (classes > 0 && listed != Shape{kSymbolicBatch, classes})
    end.fail(fmt::format(
        "the model's output is {} for one sample, the data has {} {}: end with a {} is \"classes\"",
        sample_text(built.output.shape()), classes,
        options.dense ? "classes or channels of labels" : "classes",
        options.dense ? "convolution whose out_channels" : "linear layer whose out_features"));
  auto graph = std::make_shared<Graph>(std::move(built.nodes));
  graph->train(true);
  return graph;
}

}  // namespace fq
