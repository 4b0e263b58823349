#pragma once

/// Linear and convolution layers of the operator graph.

#include <cstdint>
#include <string>
#include <vector>

#include "fakequant/core/ops/conv.h"
#include "fakequant/core/trace.h"
#include "fakequant/layers/modules/quant_modules.h"
#include "fakequant/train/ptq/algorithms.h"

namespace fq::ptq {

/// A layer y = W x + b that runs once: Linear, Conv1d or Conv2d. Its weight is a matrix of `rows()` output
/// channels with `columns()` elements each, ordered by input channel of the group, then tap.
struct WeightedLayer {
  std::string path;
  int input = -1, output = -1;      ///< indices of graph values
  Variable weight = {}, bias = {};  ///< f32; bias may be undefined
  ops::ConvOptions options = {};    ///< defaults for a linear layer
  QuantModule* quant = nullptr;

  [[nodiscard]] std::int64_t rows() const { return weight.dim(0); }
  [[nodiscard]] std::int64_t columns() const { return weight.numel() / rows(); }
  [[nodiscard]] std::int64_t taps() const { return columns() / weight.dim(1); }
  [[nodiscard]] std::int64_t groups() const noexcept { return options.groups; }
  [[nodiscard]] std::int64_t channels() const { return weight.dim(1) * groups(); }
  [[nodiscard]] bool linear() const { return weight.rank() == 2; }
  [[nodiscard]] std::int64_t row_group(std::int64_t row) const { return row / (rows() / groups()); }
  /// Returns the input channel that element (row, column) multiplies.
  [[nodiscard]] std::int64_t input_channel(std::int64_t row, std::int64_t column) const {
    return row_group(row) * weight.dim(1) + column / taps();
  }
};

struct WeightedLayers {
  std::vector<WeightedLayer> layers;  ///< in the order of execution
  std::vector<SkippedLayer> skipped;  ///< products that these algorithms cannot change
};

/// Finds the layers in `graph`, the graph of `model` with its quantizers off.
[[nodiscard]] WeightedLayers weighted_layers(Module& model, const TraceGraph& graph);

/// Returns the largest magnitude of the weights that read each input channel.
[[nodiscard]] std::vector<float> largest_by_channel(const WeightedLayer& layer);
/// Multiplies the weights that read input channel c by factors[c].
void scale_inputs(const WeightedLayer& layer, const std::vector<float>& factors);

}  // namespace fq::ptq
