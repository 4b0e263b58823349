#include "fakequant/export/onnx/import.h"

#include "fakequant/export/onnx/reader/element_types.h"
#include "fakequant/export/onnx/reader/graph/fixed_values.h"
#include "fakequant/export/onnx/reader/graph/graph_import.h"
#include "fakequant/export/onnx/reader/live_nodes.h"
#include "fakequant/export/onnx/reader/onnx_schema.h"
#include "fakequant/export/onnx/reader/patterns/graph_view.h"
#include "fakequant/layers/model/detail/symbolic_batch.h"
#include "fakequant/train/loop/checkpoint.h"

namespace fq {
namespace {

using namespace detail;

/// The nodes that count, with what is fixed computed and patterns found.
std::vector<OnnxNode> prepared(const OnnxModel& model, const ElementTypes& types, const std::string& output,
                               FixedValues& fixed) {
  auto nodes = live_nodes(with_casts(model.nodes, types), output);
  for (const auto& node : nodes) (void)fixed.fold_node(node);
  return live_nodes(with_patterns(nodes, fixed.values()), output);
}

}  // namespace

ImportedModel detail::import_checked(const OnnxModel& model, const ImportOptions& options) try {
  const std::string& output = output_of(model, options.output);
  const GraphInputs inputs = inputs_of(model, live_nodes(model.nodes, output), output, options);
  FixedValues fixed(model);
  for (const auto& [name, input] : inputs.fixed) fixed.add_input(name, input);
  const ElementTypes types(model);
  const auto nodes = prepared(model, types, output, fixed);
  const NodeNames names(nodes);
  GraphImport import(model, fixed, names, types);
  import.run(nodes, inputs);
  return import.finish(output, inputs.sample, options.name);
} catch (const ArgumentError& error) {
  throw ArgumentError(with_batch_symbol(error.what()));
}

ImportedModel import_onnx(const OnnxModel& model, const ImportOptions& options) {
  check_operators(model, live_nodes(model.nodes, output_of(model, options.output)));
  return import_checked(model, options);
}

std::shared_ptr<Graph> ImportedModel::build() const {
  auto graph = build_model(spec, sample_shape);
  load_model_state(*graph, state, spec.name());
  return graph;
}

}  // namespace fq
