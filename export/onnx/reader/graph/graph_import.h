#pragma once

/// The nodes of a graph as layers.

#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "fakequant/export/onnx/import.h"
#include "fakequant/export/onnx/reader/graph/fixed_values.h"
#include "fakequant/export/onnx/reader/missing.h"
#include "fakequant/export/onnx/reader/op_import.h"

namespace fq::detail {

/// Imports a graph whose nodes were checked by `check_operators`, or made by the reader.
[[nodiscard]] ImportedModel import_checked(const OnnxModel& model, const ImportOptions& options);

/// Makes layers of nodes, in order.
class GraphImport {
 public:
  /// All of them are kept by reference.
  GraphImport(const OnnxModel& model, FixedValues& fixed, const NodeNames& names, const ElementTypes& types)
      : model_(model), fixed_(fixed), context_{static_cast<int>(model.opset),
                                               -1,
                                               ModelBuilder(element_limit(model)),
                                               {},
                                               names,
                                               types,
                                               {}} {}

  /// Throws ArgumentError that tells of all nodes that cannot be built.
  void run(const std::vector<OnnxNode>& nodes, const GraphInputs& inputs);
  /// What `run` made, up to the value `name`.
  [[nodiscard]] ImportedModel finish(const std::string& name, const Shape& sample,
                                     const std::string& model_name);

 private:
  /// Each input is a part of the rows of the data.
  void take_parts(const std::vector<GraphInputs::Own>& parts);
  /// What cannot be built is kept, with a guess of what it gives, so that all of it is told at once.
  void build(const OnnxNode& node);
  /// The branch of an If whose condition is fixed; null otherwise.
  [[nodiscard]] const OnnxBranch* taken(const OnnxNode& node) const;
  void follow(const OnnxNode& node, const OnnxBranch& way);
  void keep(const OnnxNode& node, const std::string& name, ImportValue value);
  [[nodiscard]] bool reads_guess(const OnnxNode& node) const;
  /// Outputs of a node that cannot be built: of the shape that the file states, or of its input's.
  void guess(const OnnxNode& node);
  [[nodiscard]] std::optional<Shape> stated_shape(const std::string& name) const;
  /// Fewer than the node's where an error left one unknown.
  [[nodiscard]] std::vector<ImportValue> inputs_of(const OnnxNode& node) const;

  const OnnxModel& model_;
  FixedValues& fixed_;
  ImportContext context_;
  std::unordered_map<std::string, ImportValue> values_;
  std::set<std::string> parts_;    // layers that are inputs
  std::set<std::string> guessed_;  // values whose shape is not known
  bool failed_ = false;
  int depth_ = 0;  // branches around the node that is built
  MissingNodes missing_;
};

}  // namespace fq::detail
