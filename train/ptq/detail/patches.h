#pragma once

/// The rows that a convolution or a linear layer multiplies.

#include "fakequant/train/ptq/detail/weighted_layers.h"

namespace fq::ptq {

/// f32 [columns, positions] of one group: column k of position p is what weight column k multiplies there. Of
/// each image at most `limit` output positions, evenly spread, beginning elsewhere in each image. x is what
/// the layer reads, row-major; of a linear layer all rows are taken.
[[nodiscard]] Tensor patches(const WeightedLayer& layer, const Tensor& x, std::int64_t group,
                             std::int64_t limit);

}  // namespace fq::ptq
