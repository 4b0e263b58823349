#pragma once

/// How grids and codes are written in a graph; not a public header.

#include <string>

#include "fakequant/core/quantized.h"
#include "fakequant/export/onnx/exporter.h"
#include "fakequant/export/onnx/graph_builder.h"

namespace fq::detail {

/// The parameters of a Quantize- or DequantizeLinear node: names of constants, attributes.
struct GridNames {
  std::string scale, zero_point;
  GraphBuilder::Attributes attributes;
};

/// Adds the pair that puts floats on the grid of an activation; `codes` names the tensor between. Returns the
/// floats behind it. Throws ArgumentError, naming `path`, for what the target cannot do.
std::string add_grid(GraphBuilder& graph, const OnnxExportOptions& options, const std::string& floats,
                     int rank, const QuantSpec& spec, const std::string& path, const std::string& codes);

/// Adds the codes of a constant and the node that dequantizes them, named by the spec's name. A matrix can be
/// written transposed. Returns the floats.
std::string add_constant_codes(GraphBuilder& graph, const OnnxExportOptions& options, const std::string& name,
                               const QuantizedTensor& codes, bool transposed = false);

}  // namespace fq::detail
