#pragma once

/// Roles of layers in the graph, which rules of a config name: @first, @last and @residual. A layer without
/// weight is @sums, unless it multiplies activations.

#include <set>
#include <string>
#include <vector>

#include "fakequant/layers/model/trace.h"

namespace fq::detail {

/// Paths of the first and the last layers with a weight.
struct EdgeLayers {
  std::set<std::string> first;  ///< layers that read inputs of the network, and no output of another layer
  std::set<std::string> last;   ///< layers with only operators without weights between them and the output

  /// Returns "@first", "@last", both or none: the names of the layer at `path` in rules.
  [[nodiscard]] std::vector<std::string> role_names(const std::string& path) const;
};

[[nodiscard]] EdgeLayers edge_layers(const TraceGraph& graph);

/// Returns paths of additions on a residual stream. Only operators that engines always compute in floats
/// (`engine_form`: layer norm, RMS norm, GELU, ..) and other such additions read their sums. Operators that
/// move values may lie between. Rounding these sums costs accuracy, and no operator would run on codes.
///
/// The addition at the network's output is excluded, and so is an addition with another reader. Additions of
/// a convolution's output are excluded too: engines multiply its codes only if its sums are rounded again.
[[nodiscard]] std::set<std::string> residual_sums(const TraceGraph& graph);

}  // namespace fq::detail
