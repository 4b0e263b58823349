#pragma once

/// How the grids of activations are written in a graph.

#include <string>

#include "fakequant/core/quantized.h"
#include "fakequant/export/onnx/exporter.h"
#include "fakequant/export/onnx/writer/graph_builder.h"

namespace fq::detail {

/// An activation that goes to codes.
struct GridInput {
  std::string floats;
  int rank;
  const Grid& grid;
  std::string path;   ///< of who asks, for messages
  std::string codes;  ///< what to call the codes
  bool cut = false;   ///< codes below 0 become 0, as a ReLU would have it
};

/// Adds the node that makes codes and the one that makes floats of them. Returns the latter's output. Throws
/// ArgumentError, naming the path, for what the target cannot do.
std::string add_grid(GraphBuilder& graph, const OnnxExportOptions& options, const GridInput& input);
/// Adds the first of them only, for codes that are given out: signed ones are signed in the graph. Returns
/// the codes.
std::string add_codes(GraphBuilder& graph, const OnnxExportOptions& options, const GridInput& input);

}  // namespace fq::detail
