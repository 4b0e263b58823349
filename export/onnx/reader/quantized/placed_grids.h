#pragma once

/// Assigns the grids of a file to the quantizers of a network.

#include <nlohmann/json.hpp>
#include <string>

#include "fakequant/export/onnx/reader/quantized/unquantized.h"
#include "fakequant/export/quantized/quantized_model.h"

namespace fq::detail {

/// A node of a model file and its inputs.
struct GridNode {
  struct Read {
    std::string from;  ///< a node, or "input"
    int grid = -1;     ///< index in `Unquantized::grids` of the grid on the value; -1: none
  };
  std::string name;
  std::vector<Read> reads;
  int weights_grid = -1;  ///< grid of an attention's weights; -1: none
};

/// Removes the marks of grids from the nodes of a model file. `output` is the output of the network.
struct UnmarkedNodes {
  ModelNodes nodes;
  std::vector<GridNode> list;
  GridNode::Read output;
};
[[nodiscard]] UnmarkedNodes unmarked(const ModelNodes& nodes, const Unquantized& file);

/// Returns rules and grids for `floats`, the model of these nodes, without a target. Throws ArgumentError
/// that names the node for grids that no quantizer can represent.
struct PlacedGrids {
  nlohmann::ordered_json rules = nlohmann::ordered_json::array();
  std::vector<FileGrid> grids;
};
[[nodiscard]] PlacedGrids placed_grids(const ImportedModel& floats, const UnmarkedNodes& nodes,
                                       const Unquantized& file);

/// Whether both grids give the same codes.
[[nodiscard]] bool same_grid(const StoredGrid& a, const StoredGrid& b);

}  // namespace fq::detail
