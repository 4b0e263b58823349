#pragma once

/// Channels whose weights are so small that their bias would not fit the accumulator's grid.

#include "fakequant/layers/modules/module.h"

namespace fq {

/// Raises the range of every output channel of integer weights to where |b[c]| <= 2^22 * s_x * s_w[c]: the
/// codes of dead channels become 0, as their weights are against the bias, and the bias code stays within
/// what engines add exactly. Needs calibrated ranges; layers without a bias, a range a channel or codes of
/// activations stay, and so do ranges that a descriptor gives. Returns how many ranges were raised.
int floor_dead_channels(Module& model);

}  // namespace fq
