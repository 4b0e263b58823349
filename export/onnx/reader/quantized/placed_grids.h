#pragma once

/// Grids of a file at the quantizers of a network.

#include <nlohmann/json.hpp>
#include <string>

#include "fakequant/export/onnx/reader/quantized/unquantized.h"
#include "fakequant/export/quantized/quantized_model.h"

namespace fq::detail {

/// A node of a model file and what it reads.
struct GridNode {
  struct Read {
    std::string from;  ///< a node, or "input"
    int grid = -1;     ///< the place of the grid in `Unquantized::grids` that the value is put on; -1: none
  };
  std::string name;
  std::vector<Read> reads;
  int weights_grid = -1;  ///< of an attention's weights; -1: none
};

/// Takes the marks of grids out of the nodes of a model file; `output` is what the network gives.
struct UnmarkedNodes {
  ModelNodes nodes;
  std::vector<GridNode> list;
  GridNode::Read output;
};
[[nodiscard]] UnmarkedNodes unmarked(const ModelNodes& nodes, const Unquantized& file);

/// Rules and grids for `floats`, whose nodes these are, without a target. Throws ArgumentError naming the
/// node for grids that no quantizer can take.
struct PlacedGrids {
  nlohmann::ordered_json rules = nlohmann::ordered_json::array();
  std::vector<FileGrid> grids;
};
[[nodiscard]] PlacedGrids placed_grids(const ImportedModel& floats, const UnmarkedNodes& nodes,
                                       const Unquantized& file);

/// Whether both give the same codes.
[[nodiscard]] bool same_grid(const StoredGrid& a, const StoredGrid& b);

}  // namespace fq::detail
