#include "fakequant/export/onnx/reader/live_nodes.h"

#include <algorithm>

namespace fq::detail {

void add_reads(const OnnxNode& node, std::set<std::string>& names) {
  names.insert(node.inputs.begin(), node.inputs.end());
  for (const auto& branch : node.branches) {
    for (const auto& inner : branch.nodes) add_reads(inner, names);
    names.insert(branch.outputs.begin(), branch.outputs.end());
  }
}

std::vector<OnnxNode> live_nodes(std::vector<OnnxNode> nodes, const std::string& output) {
  std::set<std::string> needed{output};
  std::vector<OnnxNode> out;
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
    if (std::ranges::none_of(node->outputs,
                             [&](const auto& name) { return !name.empty() && needed.contains(name); }))
      continue;
    add_reads(*node, needed);
    out.push_back(std::move(*node));
  }
  std::ranges::reverse(out);
  return out;
}

}  // namespace fq::detail
