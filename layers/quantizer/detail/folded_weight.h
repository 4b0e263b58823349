#pragma once

/// What folding a batch norm writes into a layer's weight and the range of its quantizer.

#include <vector>

#include "fakequant/core/numerics/detail/fold_formulas.h"
#include "fakequant/layers/modules/quant_modules.h"

namespace fq::detail {

/// Multiplies the slices of the weight along `axis` by the factors of its channels.
void scale_channels(Variable weight, int axis, const std::vector<FoldedChannel>& channels);

/// The same of a quantized layer, and its ranges with it.
///
/// Integers with a range for each channel, or one for all, keep their codes but for the sign of the factor:
/// the range becomes one for each channel, amax * |factor|, and a weight whose code would be another one, for
/// a tie, the nearest with that code. The codes of silent channels (fold_formulas.h) become 0; a range
/// that is taken from each weight becomes a given one for them. Scales of powers of two, blocks and float
/// formats: ranges for each channel are multiplied, others taken from the new weight.
void fold_into_weight(QuantModule& layer, int axis, const std::vector<FoldedChannel>& channels);

}  // namespace fq::detail
