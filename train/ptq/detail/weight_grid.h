#pragma once

/// The grid that a layer's weights are rounded to, element by element.

#include <string>
#include <vector>

#include "fakequant/train/ptq/detail/weighted_layers.h"

namespace fq::ptq {

/// A weight quantizer of integers with fixed ranges: element i of the weight is code * scales[i].
struct WeightGrid {
  std::vector<float> scales;  ///< of each element, row-major
  float lower = 0, upper = 0;

  /// The nearest code of element i for the value v.
  [[nodiscard]] float code(std::size_t i, float v) const;
  /// fl(code * scale): a value whose nearest code is that one.
  [[nodiscard]] float value(std::size_t i, float code) const;
  /// The values of a whole weight's nearest codes less the weight, [rows, columns].
  [[nodiscard]] Tensor rounding_errors(const Tensor& weight) const;
};

/// Why the codes of this layer's weight cannot be chosen one by one; empty where they can.
[[nodiscard]] std::string reason_against_codes(const WeightedLayer& layer);
/// Of a calibrated layer that nothing speaks against.
[[nodiscard]] WeightGrid weight_grid(const WeightedLayer& layer);
/// For each element which of its quantizer's ranges it has.
[[nodiscard]] std::vector<std::size_t> range_indices(const WeightedLayer& layer);

}  // namespace fq::ptq
