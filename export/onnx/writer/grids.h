#pragma once

/// Nodes that quantize and dequantize: grids of activations, and codes of constants.

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

/// Throws ArgumentError, naming the path, if ONNX has no type for the codes of an activation or no form of
/// its ranges.
void check_activation_grid(const Grid& grid, int rank, Target target, const std::string& path);
/// Adds the node that makes codes and the one that makes floats of them. Returns the latter's output. Throws
/// ArgumentError, naming the path, for what the target cannot do.
std::string add_grid(GraphBuilder& graph, const OnnxExportOptions& options, const GridInput& input);
/// Adds the first of them only, for codes that are given out: signed ones are signed in the graph. Returns
/// the codes.
std::string add_codes(GraphBuilder& graph, const OnnxExportOptions& options, const GridInput& input);

struct WeightForm {
  bool transposed = false;      ///< a matrix, written with its axes exchanged
  bool integer_factor = false;  ///< codes of activations are multiplied by it
};

/// Adds the codes, named `name`, and the node that dequantizes them, named by the grid's name. Returns the
/// floats.
///
/// Codes have the smallest type that ONNX has for them: int4 up to 4 bits, float4e2m1, float8; E3M2 and E2M3
/// are float8e4m3, whose values they are. Integers of less than 4 bits that codes are multiplied by are int8:
/// engines have products of integers for it. Scales: one, one an index of an axis, or blocks along one axis
/// (others repeat their scales). Scales of 8 bits stay so: E4M3 times a float (NVFP4), E8M0 (MX). With
/// `emulate`, float4e2m1 becomes float8e4m3 and E8M0 float32.
std::string add_weight(GraphBuilder& graph, const OnnxExportOptions& options, const std::string& name,
                       const QuantizedTensor& codes, const WeightForm& form);

}  // namespace fq::detail
