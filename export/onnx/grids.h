#pragma once

/// How the grids of activations are written in a graph; not a public header.

#include <string>

#include "fakequant/core/quantized.h"
#include "fakequant/export/onnx/exporter.h"
#include "fakequant/export/onnx/graph_builder.h"

namespace fq::detail {

/// Adds the pair that puts floats on the grid of an activation; `codes` names the tensor between. Returns the
/// floats behind it. Throws ArgumentError, naming `path`, for what the target cannot do.
std::string add_grid(GraphBuilder& graph, const OnnxExportOptions& options, const std::string& floats,
                     int rank, const QuantSpec& spec, const std::string& path, const std::string& codes);

}  // namespace fq::detail
