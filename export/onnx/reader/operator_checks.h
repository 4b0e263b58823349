#pragma once

/// Checks inputs, attributes and opsets of operators. Unknown ones are errors.

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "fakequant/export/onnx/model.h"

namespace fq::detail {

/// Supported opsets of ONNX.
inline constexpr int kFirstOpset = 6, kLastOpset = 28;

/// One input or attribute, and the opsets that have it.
struct SchemaEntry {
  std::string name;
  int first = kFirstOpset, last = kLastOpset;

  [[nodiscard]] bool is_in(int opset) const { return opset >= first && opset <= last; }
};

struct SchemaInput : SchemaEntry {
  bool optional = false, variadic = false;
};

struct SchemaAttribute : SchemaEntry {
  std::string type;  ///< i, f, s (integer, float, text), is, fs, ss (lists), t (tensor), g (graph)
  bool required = false;
  bool unsupported = false;          ///< ONNX has the attribute; the reader rejects it.
  std::vector<std::string> allowed;  ///< Supported values; empty: any.
};

class OnnxSchema {
 public:
  /// Parses the notation of the operator table, entries separated by spaces:
  ///
  ///     inputs      "X min?@11- roi@-10 more*"          ? optional, * any number
  ///     attributes  "to:i! seed:i stash_type:i=1 clip:f~"  ! required, ~ unsupported, = supported values
  ///
  /// "@11-17" limits an entry to these opsets.
  OnnxSchema(std::string_view inputs, std::string_view attributes);

  [[nodiscard]] const std::vector<SchemaInput>& inputs() const noexcept { return inputs_; }
  [[nodiscard]] const std::vector<SchemaAttribute>& attributes() const noexcept { return attributes_; }
  /// Throws ArgumentError naming the node, and the input or attribute that is unknown or missing.
  void check(const OnnxNode& node, int opset) const;

 private:
  void check_inputs(const OnnxNode& node, int opset) const;
  [[nodiscard]] const SchemaAttribute& known(const OnnxNode& node, const std::string& name, int opset) const;

  std::vector<SchemaInput> inputs_;
  std::vector<SchemaAttribute> attributes_;
};

/// Throws ArgumentError if the operator is in the table and the node does not fit its row.
void check_operator(const OnnxNode& node, int opset);
/// Throws ArgumentError for unsupported opsets. Throws one ArgumentError that lists all nodes that do not fit
/// the table.
void check_operators(const OnnxModel& model, const std::vector<OnnxNode>& nodes);

/// Unsupported nodes of a graph, with their operators and workarounds.
class MissingNodes {
 public:
  /// Adds a node. `what` is the operator or its use: "Mul of a constant".
  void add(const OnnxNode& node, const std::string& what);
  /// Adds a node with a supported operator but unsupported attributes, shapes or types. `message` names the
  /// node and begins with "[import_onnx] ".
  void add_error(std::string message);
  /// Throws ArgumentError if anything was added.
  void check() const;

 private:
  std::map<std::string, std::vector<std::string>> nodes_;  // by `what`
  std::vector<std::string> errors_;
};

/// Returns a workaround for an unsupported operator or use of one: "export the network up to its logits".
/// Returns an empty text if there is no workaround.
[[nodiscard]] std::string way_round(const std::string& what);

}  // namespace fq::detail
