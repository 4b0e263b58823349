#pragma once

/// Roles of layers in the graph, which rules of a config name: @first, @last and @residual.

#include <set>
#include <string>
#include <vector>

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

/// Paths of additions whose sums nothing reads but operators that engines compute in floats whatever they
/// read (`engine_form`: layer norm, RMS norm, GELU, ..) and other such additions, also through what only
/// moves values. Rounding what they add costs accuracy and makes no operator run on codes. An addition that
/// makes the network's output, or is called elsewhere too where its sum is read otherwise, is none; nor is
/// one that adds what a convolution computed: engines multiply its codes only where its sums are rounded
/// again.
[[nodiscard]] std::set<std::string> residual_sums(const TraceGraph& graph);

}  // namespace fq::detail
