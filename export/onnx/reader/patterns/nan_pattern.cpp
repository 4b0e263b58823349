#include "fakequant/export/onnx/reader/patterns/graph_view.h"

namespace fq::detail {

std::optional<OnnxNode> find_without_nan(const GraphView& graph, const OnnxNode& last) {
  if (last.op != "Where" || last.inputs.size() != 3) return std::nullopt;
  const auto* test = graph.maker(last.inputs[0], "IsNaN", 1);
  const std::string& x = last.inputs[2];
  const bool fits = test != nullptr && test->inputs[0] == x && graph.number(last.inputs[1]) == 0.0 &&
                    graph.maker(x, "Softmax", 1) != nullptr;
  return fits ? std::optional(in_place_of(last, "Identity", {x})) : std::nullopt;
}

}  // namespace fq::detail
