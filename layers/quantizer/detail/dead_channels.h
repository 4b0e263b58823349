#pragma once

/// Channels whose weights are so small that their bias would not fit the accumulator's grid.

#include "fakequant/layers/modules/module.h"

namespace fq {

/// Raises ranges of integer weights until the codes of the biases fit into int32 together with the sums. The
/// codes of dead channels then become 0, because their weights are negligible next to the bias. A raised
/// range leaves half of the room free, so that training may double the bias.
///
/// Requires calibrated ranges. Skips layers without a bias, layers without codes of up to 8 bits on both
/// sides, and ranges that a descriptor gives. Returns the number of ranges raised.
int floor_dead_channels(Module& model);

}  // namespace fq
