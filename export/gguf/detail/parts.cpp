#include "fakequant/export/gguf/detail/parts.h"

#include <algorithm>
#include <map>

#include "fakequant/layers/model/trace.h"

namespace fq::detail {
namespace {

/// Returns the outermost layer that contains a path. Nested graphs do not count as layers.
std::string outermost_layer(Module& model, const std::string& path) {
  for (const auto& [name, module] : model.named_modules()) {
    const std::string type = module->type();
    if (path.starts_with(name + ".") && type != "graph" && type != "sequential") return name;
  }
  return path;
}

}  // namespace

std::vector<GgufPart> gguf_parts(Module& model, const Shape& input_shape) {
  const TraceGraph graph = trace(model, input_shape);
  std::vector<GgufPart> out;
  std::map<int, std::string> made;  // values by the layer that computed them
  for (const auto& node : graph.nodes) {
    const std::string name = outermost_layer(model, node.path);
    if (out.empty() || out.back().name != name) {
      // A layer that appears again after another layer runs twice, or in pieces: llama.cpp has no such
      // network.
      if (name.empty() || std::ranges::find(out, name, &GgufPart::name) != out.end()) return {};
      out.push_back({name, model.at(name).type(), {}, -1});
    }
    GgufPart& part = out.back();
    if (node.op == "layer_norm" || node.op == "rms_norm") part.eps = node.attribute<double>("eps");
    for (const int value : node.inputs) {
      const bool input = std::ranges::find(graph.inputs, value) != graph.inputs.end();
      // Values within the layer, and parameters, are not its inputs.
      const auto known = made.find(value);
      if (input || (known != made.end() && known->second != name)) part.inputs.insert(value);
    }
    made[node.output] = name;
    part.output = node.output;
  }
  return out;
}

const GgufPart* GgufMatching::take(std::string_view type, const std::set<int>& inputs) {
  if (at_ >= parts_.size() || parts_[at_].inputs != inputs) return nullptr;
  const std::string& found = parts_[at_].type;
  if (found != type && found != "quant_" + std::string(type)) return nullptr;
  return &parts_[at_++];
}

Shape gguf_shape(const Module& model, const std::string& name) {
  for (const auto& [path, parameter] : model.named_parameters())
    if (path == name) return parameter.shape();
  return {};
}

}  // namespace fq::detail
