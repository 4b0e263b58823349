#pragma once

/// The grid that a layer's weights are rounded to, element by element.

#include <optional>
#include <string>
#include <vector>

#include "fakequant/core/numerics/detail/minifloat.h"
#include "fakequant/train/ptq/detail/weighted_layers.h"

namespace fq::ptq {

/// Element i of the weight is code * scales[i], codes being integers or minifloats.
///
/// Values of the grid are their quantizer's own: quantizing them gives each of them back. Ranges that the
/// weight does not give stand still. A power of two at or above amax / bound falls by halves where codes stay
/// below half of the bound, and the finer grid has the values of the coarser one. An E4M3 scale would fall to
/// any other number, so that the largest element of such a block keeps the code of the bound.
struct WeightGrid {
  std::vector<float> scales;  ///< of each element, row-major; 0 where no code but 0 is
  float lower = 0, upper = 0;
  std::optional<Minifloat> minifloat = {};  ///< none: codes are integers
  std::vector<float> kept = {};  ///< the codes that elements must have, 0 for any; empty: none must

  /// The nearest code of element i for the value v.
  [[nodiscard]] float code(std::size_t i, float v) const;
  /// fl(code * scale): a value whose nearest code is that one.
  [[nodiscard]] float value(std::size_t i, float code) const;
  /// The values of a whole weight's nearest codes less the weight, [rows, columns].
  [[nodiscard]] Tensor rounding_errors(const Tensor& weight) const;
};

/// Why the weights of this layer cannot be rounded one by one to values that their quantizer keeps; empty
/// where they can.
[[nodiscard]] std::string reason_against_rounding(const WeightedLayer& layer);
/// The same, and why they have no codes of integers in fixed ranges.
[[nodiscard]] std::string reason_against_codes(const WeightedLayer& layer);
/// Of a calibrated layer that the first has nothing against.
[[nodiscard]] WeightGrid weight_grid(const WeightedLayer& layer);
/// For each element which of its quantizer's ranges it has.
[[nodiscard]] std::vector<std::size_t> range_indices(const WeightedLayer& layer);

}  // namespace fq::ptq
