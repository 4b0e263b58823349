#pragma once

/// The first and the last layers of a network, which low bits hurt most, read from the graph of operators.

#include <set>
#include <string>

#include "fakequant/layers/model/trace.h"

namespace fq::detail {

/// Paths of layers with a weight.
struct EdgeLayers {
  std::set<std::string> first;  ///< read what the network is given, and nothing that another layer made
  std::set<std::string> last;   ///< nothing but operators without a weight lies between them and the output

  /// "@first", "@last" or both, as the names that rules of a config have for the layer at `path`.
  [[nodiscard]] std::vector<std::string> names_of(const std::string& path) const;
};

[[nodiscard]] EdgeLayers edge_layers(const TraceGraph& graph);

}  // namespace fq::detail
