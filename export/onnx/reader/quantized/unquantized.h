#pragma once

/// Converts a graph with QuantizeLinear and DequantizeLinear to a float graph and its grids.

#include <vector>

#include "fakequant/export/onnx/reader/quantized/stored_grid.h"

namespace fq::detail {

/// Mark of a value on a grid: a node of kPatternDomain with one input. Its attribute "index" is the index in
/// `Unquantized::grids`, and "origin" the node that defines the grid. With one scale per element of an axis,
/// it also has "axis" and the number of "scales".
inline constexpr const char* kGridMark = "OnGrid";

/// A weight of the float graph.
struct StoredWeight {
  StoredGrid grid;
  Tensor codes, values;  ///< f32 in the file's shape; values are code * scale, or the floats of the file
};

struct Unquantized {
  OnnxModel floats;
  std::vector<StoredGrid> grids;      ///< grids of computed values
  std::vector<StoredWeight> weights;  ///< grids of constants, except 32-bit sums (biases)
  bool integer_bias = false;          ///< whether the file has 32-bit biases
};

/// Replaces constants by their dequantized values, computed values on a grid by marks, and a Clip of codes
/// that acts as a ReLU by a Relu. Throws ArgumentError that names the node as `stored_grid`, if other
/// operators than Clip are between a QuantizeLinear and its DequantizeLinear, if their grids differ, or if
/// one of them is missing.
[[nodiscard]] Unquantized unquantized(const OnnxModel& model);
/// Whether the graph has such nodes.
[[nodiscard]] bool has_grids(const OnnxModel& model);

}  // namespace fq::detail
