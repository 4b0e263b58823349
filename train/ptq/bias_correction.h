#pragma once

/// Bias correction: what quantization shifts on average, taken out of the bias.

#include <cstdint>

#include "fakequant/layers/modules/module.h"
#include "fakequant/train/data/loader.h"
#include "fakequant/train/ptq/report.h"

namespace fq::ptq {

struct BiasCorrectionOptions {
  std::int64_t samples = 0;  ///< images to look at; 0 is all of one epoch
};

/// Subtracts E[y_q - y] of each output channel from the bias of linear layers and convolutions, y being the
/// layer's output in float and y_q in the quantized model, over the data (Nagel et al., "Data-Free
/// Quantization Through Weight Equalization and Bias Correction", 2019, empirical form). Layer after layer,
/// each behind corrected ones: one pass in float, and one for each layer. Layers without a bias are left
/// alone and reported, as those whose weight and input are float.
///
/// `model` must be calibrated. Reported: the mean of (E[y_q - y])^2 over channels, before and after; biases
/// are rounded to the accumulator's grid, so something small stays. Throws ArgumentError when there is no
/// data and for a quantizer without a range; NumericError for a NaN, naming the batch or the layer, and for
/// an infinity.
Report correct_bias(Module& model, DataLoader& data, const BiasCorrectionOptions& options = {});

}  // namespace fq::ptq
