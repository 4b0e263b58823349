#pragma once

/// Nodes that quantize and dequantize: grids of activations, and codes of constants.

#include <string>

#include "fakequant/core/quantized.h"
#include "fakequant/export/onnx/exporter.h"
#include "fakequant/export/onnx/writer/graph_builder.h"

namespace fq::detail {

/// An activation to quantize.
struct GridInput {
  std::string floats;
  int rank;
  const Grid& grid;
  std::string path;   ///< path of the caller, for messages
  std::string codes;  ///< name of the codes
  bool cut = false;   ///< whether codes below 0 become 0, as with a ReLU
};

/// Throws ArgumentError that names the path if ONNX has no type for the codes of an activation or no form of
/// its ranges.
void check_activation_grid(const Grid& grid, int rank, Target target, const std::string& path);
/// Adds a node that quantizes and a node that dequantizes. Returns the output of the second. Throws
/// ArgumentError that names the path for grids that the target does not support.
std::string add_grid(GraphBuilder& graph, const OnnxExportOptions& options, const GridInput& input);
/// Adds only the quantizing node, for codes that are graph outputs. Signed codes stay signed. Returns the
/// codes.
std::string add_codes(GraphBuilder& graph, const OnnxExportOptions& options, const GridInput& input);

struct WeightForm {
  bool transposed = false;      ///< writes the matrix with its axes exchanged
  bool integer_factor = false;  ///< whether the codes multiply activation codes
};

/// Adds the codes with the name `name`, and the node that dequantizes them, named after the grid. Returns the
/// floats.
///
/// Codes have the smallest ONNX type that fits: int4 up to 4 bits, float4e2m1, float8. E3M2 and E2M3 become
/// float8e4m3 with equal values. Integers of less than 4 bits that multiply codes are int8, because engines
/// have integer products for int8.
///
/// There may be one scale, one per index of an axis, or blocks along one axis (otherwise scales are
/// repeated). 8-bit scales keep their type: E4M3 times a float (NVFP4), E8M0 (MX). With `emulate`, float4e2m1
/// becomes float8e4m3 and E8M0 becomes float32.
std::string add_weight(GraphBuilder& graph, const OnnxExportOptions& options, const std::string& name,
                       const QuantizedTensor& codes, const WeightForm& form);

}  // namespace fq::detail
