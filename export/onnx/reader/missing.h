#pragma once

/// What an import lacks, told all at once.

#include <map>
#include <string>
#include <vector>

#include "fakequant/export/onnx/model.h"

namespace fq::detail {

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

/// What somebody can do about an operator, or a use of it, that is not supported: "put the normalisation ..";
/// empty where there is nothing to say.
[[nodiscard]] std::string way_round(const std::string& what);

}  // namespace fq::detail
