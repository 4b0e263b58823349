#pragma once

/// The quantization grid of a layer's weights, element by element.

#include <optional>
#include <string>
#include <vector>

#include "fakequant/core/numerics/detail/minifloat.h"
#include "fakequant/train/ptq/detail/weighted_layers.h"

namespace fq::ptq {

/// Element i of the weight is code * scales[i]. Codes are integers or minifloats.
///
/// Quantizing a grid value returns the same value. This needs care if the quantizer computes ranges from the
/// weight. A power-of-two scale is the next one at or above amax / bound: it halves if all codes fall below
/// half of the bound, and the finer grid contains the values of the coarser one. An E4M3 scale could become
/// any other number, so the largest element of an NVFP4 block must keep the code of the bound.
struct WeightGrid {
  std::vector<float> scales;  ///< scale per element, row-major; 0 if only code 0 exists
  float lower = 0, upper = 0;
  std::optional<Minifloat> minifloat = {};  ///< empty for integer codes
  std::vector<float> fixed_codes = {};      ///< fixed code per element, 0 if free; empty if all are free

  /// Returns the nearest code of element i for the value v.
  [[nodiscard]] float code(std::size_t i, float v) const;
  /// Returns fl(code * scale). The nearest code of this value is `code`.
  [[nodiscard]] float value(std::size_t i, float code) const;
  /// Returns the quantized weight minus the weight, [rows, columns].
  [[nodiscard]] Tensor rounding_errors(const Tensor& weight) const;
};

/// Returns why the weights of this layer cannot be rounded one by one to grid values; empty if they can.
[[nodiscard]] std::string reason_against_rounding(const WeightedLayer& layer);
/// Returns why the weights have no integer codes in fixed ranges; empty if they have.
[[nodiscard]] std::string reason_against_codes(const WeightedLayer& layer);
/// Returns the grid of a calibrated layer. `reason_against_rounding(layer)` must be empty.
[[nodiscard]] WeightGrid weight_grid(const WeightedLayer& layer);
/// Returns for each element the index of its range in the quantizer.
[[nodiscard]] std::vector<std::size_t> range_indices(const WeightedLayer& layer);

}  // namespace fq::ptq
