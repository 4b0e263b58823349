#pragma once

/// The part of a graph that an output needs.

#include <set>
#include <string>
#include <vector>

#include "fakequant/export/onnx/model.h"

namespace fq::detail {

/// Adds all names that a node reads, those that its branches take from around them with them.
void add_reads(const OnnxNode& node, std::set<std::string>& names);
/// The nodes that the output needs, in their order.
[[nodiscard]] std::vector<OnnxNode> live_nodes(std::vector<OnnxNode> nodes, const std::string& output);

}  // namespace fq::detail
