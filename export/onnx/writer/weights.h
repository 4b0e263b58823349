#pragma once

/// How the codes of constants are written in a graph.

#include <string>

#include "fakequant/core/quantized.h"
#include "fakequant/export/onnx/exporter.h"
#include "fakequant/export/onnx/writer/graph_builder.h"

namespace fq::detail {

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
