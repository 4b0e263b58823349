#pragma once

/// Weights of -a and +a.

#include "fakequant/core/quantized.h"
#include "fakequant/layers/quantizer/settings.h"

namespace fq::detail {

/// Codes of x by its signs: -1 below 0, +1 elsewhere, with the mean |x| of each channel of the descriptor's
/// axis as scale, or of all of x without an axis; every gradient passes. Means are sums in double on the
/// host, in the order of the elements. A channel whose mean is at most 2^-24 has codes of 0. Throws
/// ArgumentError for an axis that x does not have and NumericError for a NaN or an infinity, both naming the
/// quantizer.
[[nodiscard]] QuantizedTensor binary_codes(const Tensor& x, const QuantizerSettings& settings);

}  // namespace fq::detail
