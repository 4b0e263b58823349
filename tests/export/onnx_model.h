#pragma once

/// ONNX graphs by hand.

#include <string>
#include <utility>
#include <vector>

#include "fakequant/export/onnx/model.h"

namespace fq::test {

using Attributes = std::vector<std::pair<std::string, OnnxAttribute>>;
using Ints = std::vector<std::int64_t>;

/// A graph with the input "x" and the output "y".
class OnnxGraph {
 public:
  explicit OnnxGraph(const Ints& input, DType dtype = DType::f32) {
    model.opset = 20;
    model.inputs.push_back({"x", OnnxKind::tensor, dtype, true, {}});
    for (const auto size : input) model.inputs[0].shape.push_back({size, size < 0 ? "n" : ""});
    model.outputs.push_back({"y", OnnxKind::tensor, DType::f32, false, {}});
  }
  OnnxGraph& fixed(const std::string& name, Tensor value) {
    model.initializers.push_back({name, std::move(value), false});
    return *this;
  }
  OnnxGraph& ints(const std::string& name, const Ints& values) {
    return fixed(name, Tensor::from(values, {static_cast<std::int64_t>(values.size())}));
  }
  OnnxGraph& number(const std::string& name, float value) { return fixed(name, Tensor::from({value}, {})); }
  /// Named as its output.
  OnnxGraph& node(const std::string& op, std::vector<std::string> inputs, const std::string& output,
                  Attributes attributes = {}) {
    model.nodes.push_back({op, output, "", std::move(inputs), {output}, std::move(attributes)});
    return *this;
  }

  OnnxModel model;
};

}  // namespace fq::test
