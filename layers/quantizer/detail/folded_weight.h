#pragma once

/// Folds a batch norm into a layer's weight and the range of its quantizer.

#include <vector>

#include "fakequant/core/numerics/detail/fold_formulas.h"
#include "fakequant/layers/modules/quant_modules.h"

namespace fq::detail {

/// Multiplies the slices of the weight along `axis` by the factors of its channels.
void scale_channels(Variable weight, int axis, const std::vector<FoldedChannel>& channels);

/// Multiplies the weight of a quantized layer by the factors, and adapts its ranges.
///
/// Integers with a range for each channel, or with one range, keep their codes, with the opposite sign if the
/// factor is negative. The ranges become one for each channel, amax * |factor|. If rounding at a tie would
/// change a code, the weight becomes the nearest number with the old code. The codes of silent channels
/// (fold_formulas.h) become 0. A range taken from each weight becomes fixed if a channel is silent.
///
/// For scales of powers of two, blocks and float formats, ranges per channel are multiplied. Other ranges are
/// recomputed from the new weight.
void fold_into_weight(QuantModule& layer, int axis, const std::vector<FoldedChannel>& channels);

}  // namespace fq::detail
