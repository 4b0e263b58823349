#pragma once

/// Builds an OnnxModel, and adapts the finished graph to ONNX Runtime.

#include <map>
#include <set>
#include <string>

#include "fakequant/export/onnx/model.h"

namespace fq::detail {

/// Creates unique names, and stores equal constants with equal names once. Tensors are identified by name.
class GraphBuilder {
 public:
  using Attributes = std::vector<std::pair<std::string, OnnxAttribute>>;

  /// Adds a node. Its output is named `output`, or after the node. Returns the output's name.
  std::string add(std::string op, const std::string& name, std::vector<std::string> inputs,
                  Attributes attributes = {}, std::string output = {});
  /// Adds a constant. Returns its name, which gets a suffix if another constant has the name.
  std::string constant(const std::string& name, const Tensor& value);
  /// Raises the opset of the model to at least `opset`.
  void needs_opset(int opset);
  /// Returns an unused name for a tensor.
  std::string free_tensor_name(const std::string& wish);
  /// Returns an unused name for a node.
  std::string free_node_name(const std::string& wish);

  OnnxModel model;

 private:
  std::set<std::string> nodes_, tensors_;
  std::map<std::string, std::size_t> constants_;  // index into model.initializers
};

/// Repeats a product, an addition or an average of codes for each quantizer that reads it. ONNX Runtime
/// computes such a node in integers only if one quantizer reads it, directly or through a ReLU. Two integer
/// nodes take less time than one float node, and give the codes of evaluation here.
void split_sums(GraphBuilder& graph);

/// Writes a convolution of 8-bit codes whose sums are read as floats as ConvInteger, an integer bias and one
/// multiplication by the scale: fl(fl(A) * s), the floats of evaluation here. ONNX Runtime would multiply the
/// dequantized floats. Requires `split_sums` before.
void write_integer_convolutions(GraphBuilder& graph);

/// Gives each product after the first its own constants. On a processor without VNNI, ONNX Runtime changes
/// the codes of an 8-bit weight and its zero points for each product (`session.x64quantprecision`). It does
/// not load a graph in which two products read one constant.
void separate_weights(GraphBuilder& graph);

}  // namespace fq::detail
