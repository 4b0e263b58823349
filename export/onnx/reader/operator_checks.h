#pragma once

/// Inputs, attributes and versions that an operator may have. Everything else in a file is an error.

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "fakequant/export/onnx/model.h"

namespace fq::detail {

/// Opsets of ONNX whose semantics the reader follows.
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

/// The nodes of a graph that cannot be imported, with their operators and ways round.
class MissingNodes {
 public:
  /// `what`: the operator, or how it is used: "Mul of a constant".
  void add(const OnnxNode& node, const std::string& what);
  /// A node whose operator is supported and whose attributes, shapes or types are not; `message` names it and
  /// begins with "[import_onnx] ".
  void add_error(std::string message);
  /// Throws ArgumentError unless nothing was added.
  void check() const;

 private:
  std::map<std::string, std::vector<std::string>> nodes_;  // by what
  std::vector<std::string> errors_;
};

/// Returns a workaround for an unsupported operator or use of one: "export the network up to its logits".
/// Returns an empty text if none is known.
[[nodiscard]] std::string way_round(const std::string& what);

}  // namespace fq::detail
