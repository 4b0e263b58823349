#pragma once

/// A graph of QuantizeLinear and DequantizeLinear as a float graph, and the grids that were in it.

#include <vector>

#include "fakequant/export/onnx/reader/quantized/stored_grid.h"

namespace fq::detail {

/// The mark that stands where a value was put on a grid: a node of kPatternDomain with one input, whose
/// attribute "index" is the grid's place in `Unquantized::grids` and "origin" the node that states it. With
/// one scale for each element of an axis, it has "axis" and the number of "scales".
inline constexpr const char* kGridMark = "OnGrid";

/// A weight as the float graph has it.
struct StoredWeight {
  StoredGrid grid;
  Tensor codes, values;  ///< f32, of the file's shape; values are code * scale, or the floats that were there
};

struct Unquantized {
  OnnxModel floats;
  std::vector<StoredGrid> grids;      ///< of values that are computed
  std::vector<StoredWeight> weights;  ///< of constants, but for sums of 32 bits (biases)
  bool integer_bias = false;          ///< whether one of those is there
};

/// Takes constants through their grids, leaves marks for values that are computed, and a Relu where a Clip
/// of codes had that effect. Throws ArgumentError naming the node: as `stored_grid`; where other operators
/// than Clip lie between the two, their grids differ, or one is without the other.
[[nodiscard]] Unquantized unquantized(const OnnxModel& model);
/// Whether the graph has such nodes.
[[nodiscard]] bool has_grids(const OnnxModel& model);

}  // namespace fq::detail
