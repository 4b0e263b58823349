#pragma once

/// An OnnxModel in the making.

#include <map>
#include <set>
#include <string>

#include "fakequant/export/onnx/model.h"

namespace fq::detail {

/// Gives names and keeps constants of equal name and value once. Tensors are known by name.
class GraphBuilder {
 public:
  using Attributes = std::vector<std::pair<std::string, OnnxAttribute>>;

  /// Adds a node; its output is named `output`, or made of the node's name. Returns the output's name.
  std::string add(std::string op, const std::string& name, std::vector<std::string> inputs,
                  Attributes attributes = {}, std::string output = {});
  /// Adds a constant. Returns its name, which differs where another constant has it.
  std::string constant(const std::string& name, const Tensor& value);
  /// The oldest operator set that has what was added.
  void needs_opset(int opset);
  /// A name for a tensor that nobody has yet.
  std::string free_tensor_name(const std::string& wish);
  /// The same for a node.
  std::string free_node_name(const std::string& wish);

  OnnxModel model;

 private:
  std::set<std::string> nodes_, tensors_;
  std::map<std::string, std::size_t> constants_;  // index into model.initializers
};

}  // namespace fq::detail
