#pragma once

/// Channels whose weights are so small that their bias would not fit the accumulator's grid.

#include "fakequant/layers/modules/module.h"

namespace fq {

/// Raises each range of integer weights to where the codes of its biases fit into int32 next to the sums: the
/// codes of dead channels become 0, as their weights are next to the bias. A raised range leaves half of that
/// room, so that training may double the bias. Needs calibrated ranges. Layers without a bias or without
/// codes of up to 8 bits on both sides stay, and so do ranges that a descriptor gives. Returns the number of
/// ranges raised.
int floor_dead_channels(Module& model);

}  // namespace fq
