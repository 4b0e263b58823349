#pragma once

/// A local search over which of its two neighbouring codes each weight gets.

#include "fakequant/train/ptq/detail/input_statistics.h"
#include "fakequant/train/ptq/detail/weight_grid.h"

namespace fq::ptq {

/// Rounds single weights the other way while that lowers the squared error of the layer's output, in each row
/// the one that lowers it most first: at the end no single change helps. `floors` are the lower codes, `up`
/// which weights take the next one; it is changed.
void flip_roundings(const WeightedLayer& layer, const WeightGrid& grid, const InputStatistics& statistics,
                    const std::vector<float>& floors, std::vector<bool>& up);

}  // namespace fq::ptq
