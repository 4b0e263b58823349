#include "fakequant/export/onnx/writer/graph_builder.h"

#include <algorithm>

namespace fq::detail {
namespace {

std::string unique(std::set<std::string>& taken, const std::string& wish) {
  std::string name = wish;
  for (int i = 1; !taken.insert(name).second; ++i) name = wish + "." + std::to_string(i);
  return name;
}

}  // namespace

std::string GraphBuilder::free_tensor_name(const std::string& wish) { return unique(tensors_, wish); }
std::string GraphBuilder::free_node_name(const std::string& wish) { return unique(nodes_, wish); }

std::string GraphBuilder::add(std::string op, const std::string& name, std::vector<std::string> inputs,
                              Attributes attributes, std::string output) {
  OnnxNode node{std::move(op), free_node_name(name), "", std::move(inputs), {}, std::move(attributes)};
  std::string result = free_tensor_name(output.empty() ? node.name + ".output" : output);
  node.outputs = {result};
  model.nodes.push_back(std::move(node));
  return result;
}

std::string GraphBuilder::constant(const std::string& name, const Tensor& value) {
  const auto known = constants_.find(name);
  if (known != constants_.end() && bitwise_equal(model.initializers[known->second].value, value)) return name;
  std::string free = free_tensor_name(name);
  constants_.emplace(name, model.initializers.size());
  model.initializers.push_back({free, value, false});
  return free;
}

void GraphBuilder::needs_opset(int opset) { model.opset = std::max<std::int64_t>(model.opset, opset); }

}  // namespace fq::detail
